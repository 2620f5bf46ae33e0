"""Alternatives for the same place in a text, ranked by a reader's expectation there."""

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
from hebblm.reader.inputs import bytes_of
from hebblm.reader.session import ReaderSession
from hebblm.text.vocabulary import Encoded
from hebblm.text.words import spelled_bytes

ROWS = 50  # tokens that are predicted at once, each with the probabilities of all words
SPELLING = 8 * math.log(2)  # nats a byte of a word without a row


class RankedText(NamedTuple):
    """An alternative and its scores.

    Args:
        text: the alternative.
        score: ``log_prob + weight * prior``, by which alternatives are sorted.
        log_prob: nats, of all its tokens and the spelling of those without a row, after adaptation.
        unadapted: the same under the trained base, with rows of zeros for new words.
        prior: the prior given for it, or 0.
        tokens: number of its tokens.
    """

    text: str
    score: float
    log_prob: float
    unadapted: float
    prior: float
    tokens: int


def check_alternatives(
    texts: Sequence[str], prior: Sequence[float] | None, weight: float
) -> list[float]:
    """Refuse alternatives that cannot be ranked, before any model reads them; return the priors."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise UserError(
            f"{texts!r:.60} is not a list of alternatives; give a list of strings, at least one"
        )
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(
                f"alternative {number} is {text!r:.60}, not a text; write it as a string, or leave "
                "it out"
            )
    if prior is not None and not isinstance(prior, Iterable):
        raise UserError(
            f"prior = {prior!r:.60} is not a row of numbers; give one for each alternative"
        )
    values = [0.0] * len(texts) if prior is None else [*prior]
    if len(values) != len(texts):
        raise UserError(
            f"prior has {len(values)} numbers for {len(texts)} alternatives; give one for each"
        )
    named: list[tuple[str, Any]] = [
        (f"prior of alternative {number}", value) for number, value in enumerate(values, 1)
    ]
    for name, value in [*named, ("weight", weight)]:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise UserError(f"{name} = {value!r:.60} must be a finite number")
    return [float(value) for value in values]


@torch.no_grad()
def rank(
    session: ReaderSession,
    texts: Sequence[str],
    before: str,
    *,
    prior: Sequence[float] | None,
    weight: float,
) -> list[RankedText]:
    """Rank alternatives, best first; ties keep the given order. See :meth:`hebblm.Reader.rank`.

    All tokens are predicted from the memory as it stands.

    Args:
        session: at the place where ``before`` begins.
        texts: the alternatives, read as one text with ``before``; tokens that differ from those of
            ``before`` count. One without text costs the end of the line.
        before: text directly before each.
        prior: another score of each.
        weight: factor of the prior.
    """
    priors = check_alternatives(texts, prior, weight)
    for text in (before, *texts):
        if not isinstance(text, str):
            raise UserError(f"before = {text!r:.60} is not a text; give a string")
        bytes_of(text)
    vocabulary = session.vocabulary
    common = vocabulary.encode(before, include=False)
    silence = vocabulary.encode(before.rstrip(" ") + "\n", include=False)
    wholes = [
        silence if _is_silent(text) else vocabulary.encode(before + text, include=False)
        for text in texts
    ]
    begin = min(_same(common, whole) for whole in wholes)
    for number, (text, whole) in enumerate(zip(texts, wholes, strict=True), 1):
        if len(whole.ids) == begin:
            raise UserError(
                f"alternative {number}, {text!r:.60}, has no token of its own; leave it out"
            )
    rows = len(session.base.head.weight)
    ids = [session.source.readable(session.last.new_tensor(whole.ids)) for whole in wholes]
    sums = _sums(session, ids, begin)
    ranked = []
    for text, whole, ids_of_text, value, (adapted, base) in zip(
        texts, wholes, ids, priors, sums.tolist(), strict=True
    ):
        new = {
            at for at, index in enumerate(whole.ids) if index >= rows or index == vocabulary.unknown
        }
        new.update(whole.unknown)  # where a tokenizer has no id for these alone
        spelling = SPELLING * sum(spelled_bytes(whole.tokens[at]) for at in new if at >= begin)
        log_prob = adapted - spelling
        score = log_prob + weight * value
        ranked.append(
            RankedText(text, score, log_prob, base - spelling, value, len(ids_of_text) - begin)
        )
    return sorted(ranked, key=lambda one: -one.score)


def _is_silent(text: str) -> bool:
    """Return whether an alternative says that nothing follows, for which the line ends."""
    return not text.strip() and "\n" not in text


def _same(common: Encoded, whole: Encoded) -> int:
    """Return how many tokens two texts share at their beginning."""
    pairs = zip(
        zip(common.tokens, common.ids, strict=True),
        zip(whole.tokens, whole.ids, strict=True),
        strict=False,
    )
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other),
        min(len(common.ids), len(whole.ids)),
    )


def _sums(session: ReaderSession, ids: Sequence[Tensor], begin: int) -> Tensor:
    """Return log-probabilities (A, 2) in nats of texts of ids (N_a,) from a place on, adapted and
    not.

    Recognisers' lists share many beginnings; the token after a shared beginning is predicted once.
    """
    device = session.last.device
    states, trained = session.base.beyond(
        torch.cat([session.last, ids[0][:begin]]), [ids_of_text[begin:-1] for ids_of_text in ids]
    )
    texts = [ids_of_text.tolist() for ids_of_text in ids]
    places: dict[tuple[int, ...], int] = {}  # of each beginning that is predicted
    first: list[tuple[int, int]] = []  # alternative and token where each occurs first
    asked: list[tuple[int, int, int]] = []  # beginning, token, alternative
    for number, text in enumerate(texts):
        for at in range(begin, len(text)):
            key = tuple(text[begin:at])
            if key not in places:
                places[key] = len(first)
                first.append((number, at))
            asked.append((places[key], text[at], number))
    hidden = torch.stack([states[number][at - begin] for number, at in first]).to(
        device, session.base.head.weight.dtype
    )
    by_trained = (
        None
        if trained is None
        else torch.stack([trained[number][at - begin] for number, at in first])
    )
    contexts = _contexts(session, texts, first)
    rows, tokens, owners = torch.tensor(asked, device=device).t()
    sums = torch.zeros(len(ids), 2, dtype=torch.float64, device=device)
    for start in range(0, len(first), ROWS):
        part = slice(start, start + ROWS)
        batch = EvalBatch(
            hidden[part], session.context, contexts=None if contexts is None else contexts[part]
        )
        in_block = (rows >= start) & (rows < start + ROWS)
        for column, log_probs in enumerate(
            (
                session.predictor.log_probs(batch),
                session.base.trained_log_probs(
                    batch, None if by_trained is None else by_trained[part]
                ),
            )
        ):
            sums[:, column].index_add_(
                0, owners[in_block], log_probs[rows[in_block] - start, tokens[in_block]].double()
            )
    return sums


def _contexts(
    session: ReaderSession, texts: Sequence[Sequence[int]], places: Sequence[tuple[int, int]]
) -> Ints | None:
    """Return contexts (N, order) of tokens, each given by text and place, if the reader counts
    n-grams.
    """
    ngrams = session.context.ngrams
    if ngrams is None:
        return None
    past = session.past()
    return np.stack([ngrams.context_after([*past, *texts[number][:at]]) for number, at in places])
