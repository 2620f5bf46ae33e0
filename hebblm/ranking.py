"""Alternatives for the same place in a text, ranked by what a reader expects there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.errors import UserError
from hebblm.memory.ngram_rows import Ints
from hebblm.reader_text import bytes_of
from hebblm.stream_reader import StreamReader
from hebblm.text.vocabulary import Encoded, Vocabulary
from hebblm.text.words import spelled_bytes

ROWS = 50  # tokens that are predicted at once, each with the probabilities of all words
SPELLING = 8 * math.log(2)  # nats a byte of a word without a row


class RankedText(NamedTuple):
    """An alternative and what speaks for it.

    Args:
        text: itself.
        score: ``log_prob + weight * prior``, by which alternatives are sorted.
        log_prob: nats, of all its tokens and the spelling of those without a row, after adaptation.
        unadapted: the same under the base with the weights of training, and rows of zeros for new words.
        prior: what was given for it, 0 where nothing was.
        tokens: how many it has.
    """

    text: str
    score: float
    log_prob: float
    unadapted: float
    prior: float
    tokens: int


def check_alternatives(texts: Sequence[str], prior: Sequence[float] | None, weight: float) -> list[float]:
    """Refuse what cannot be ranked, before any model is asked; the priors of the others."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise UserError(f"{texts!r:.60} is no list of alternatives; give a list of strings, at least one")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text:
            raise UserError(f"alternative {number} is {text!r:.60}, not a text; write it as a string, or leave it out")
    if prior is not None and not isinstance(prior, Iterable):
        raise UserError(f"prior = {prior!r:.60} is no row of numbers; give one for each alternative")
    values = [0.0] * len(texts) if prior is None else [*prior]
    if len(values) != len(texts):
        raise UserError(f"prior has {len(values)} numbers for {len(texts)} alternatives; give one for each")
    named: list[tuple[str, Any]] = [(f"prior of alternative {number}", value) for number, value in enumerate(values, 1)]
    for name, value in [*named, ("weight", weight)]:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise UserError(f"{name} = {value!r:.60} must be a finite number")
    return [float(value) for value in values]


@torch.no_grad()
def ranked(
    reader: StreamReader,
    vocabulary: Vocabulary,
    last: Tensor,
    texts: Sequence[str],
    before: str,
    prior: Sequence[float] | None,
    weight: float,
) -> list[RankedText]:
    """Alternatives, best first; equal ones in the order given.

    All tokens are predicted from what the reader knows as it stands.

    Args:
        reader: at the place where ``before`` begins, after the token ``last`` (1,).
        vocabulary: of the reader's model.
        texts: the alternatives, read as one text with ``before``; tokens that differ from those of ``before`` count.
        before: text directly before each.
        prior: what speaks for each besides.
        weight: of that.
    """
    priors = check_alternatives(texts, prior, weight)
    for text in (before, *texts):
        if not isinstance(text, str):
            raise UserError(f"before = {text!r:.60} is no text; give a string")
        bytes_of(text)
    common = vocabulary.encode(before, include=False)
    wholes = [vocabulary.encode(before + text, include=False) for text in texts]
    begin = min(_same(common, whole) for whole in wholes)
    for number, (text, whole) in enumerate(zip(texts, wholes, strict=True), 1):
        if len(whole.ids) == begin:
            raise UserError(f"alternative {number}, {text!r:.60}, has no token of its own; leave it out")
    rows = len(reader.base.head.weight)
    ids = [reader.known(last.new_tensor(whole.ids), rows) for whole in wholes]
    sums = _sums(reader, last, ids, begin)
    found = []
    for text, whole, own, value, (adapted, base) in zip(texts, wholes, ids, priors, sums.tolist(), strict=True):
        new = {*whole.unknown, *(at for at, index in enumerate(whole.ids) if index >= rows)}
        spelling = SPELLING * sum(spelled_bytes(whole.tokens[at]) for at in new if at >= begin)
        log_prob = adapted - spelling
        score = log_prob + weight * value
        found.append(RankedText(text, score, log_prob, base - spelling, value, len(own) - begin))
    return sorted(found, key=lambda one: -one.score)


def _same(common: Encoded, whole: Encoded) -> int:
    """How many tokens two texts begin with in common."""
    pairs = zip(zip(common.tokens, common.ids, strict=True), zip(whole.tokens, whole.ids, strict=True), strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(common.ids), len(whole.ids)))


def _sums(reader: StreamReader, last: Tensor, ids: Sequence[Tensor], begin: int) -> Tensor:
    """Log-probabilities (A, 2) of what stands in texts of ids (N_a,) from a place on, adapted and not, nats.

    What follows equal beginnings, of which recognisers' lists have many, is predicted once.
    """
    states, trained = reader.base.beyond(torch.cat([last, ids[0][:begin]]), [own[begin:-1] for own in ids])
    texts = [own.tolist() for own in ids]
    places: dict[tuple[int, ...], int] = {}  # of beginnings among those that are predicted
    first: list[tuple[int, int]] = []  # alternative and token of each, where it is met first
    asked: list[tuple[int, int, int]] = []  # beginning, token, and whose that is
    for number, text in enumerate(texts):
        for at in range(begin, len(text)):
            key = tuple(text[begin:at])
            if key not in places:
                places[key] = len(first)
                first.append((number, at))
            asked.append((places[key], text[at], number))
    hidden = torch.stack([states[number][at - begin] for number, at in first]).to(
        last.device, reader.base.head.weight.dtype
    )
    beside = None if trained is None else torch.stack([trained[number][at - begin] for number, at in first])
    contexts = _contexts(reader, texts, first)
    rows, tokens, owners = torch.tensor(asked, device=last.device).t()
    sums = torch.zeros(len(ids), 2, dtype=torch.float64, device=last.device)
    for start in range(0, len(first), ROWS):
        part = slice(start, start + ROWS)
        batch = EvalBatch(hidden[part], reader.context, contexts=None if contexts is None else contexts[part])
        here = (rows >= start) & (rows < start + ROWS)
        for column, log_probs in enumerate(
            (
                reader.rule.log_probs(batch),
                reader.base.trained_log_probs(batch, None if beside is None else beside[part]),
            )
        ):
            sums[:, column].index_add_(0, owners[here], log_probs[rows[here] - start, tokens[here]].double())
    return sums


def _contexts(reader: StreamReader, texts: Sequence[Sequence[int]], places: Sequence[tuple[int, int]]) -> Ints | None:
    """Contexts (N, order) of tokens, each of a text and a place in it, if the reader counts n-grams."""
    ngrams = reader.context.ngrams
    if ngrams is None:
        return None
    past = reader.context.stream_states[0].history[::-1].tolist()
    return np.stack([ngrams.context_after([*past, *texts[number][:at]]) for number, at in places])
