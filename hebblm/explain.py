"""Why words are suggested: what each part of a method gives them, and the memory entries that weigh most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.components import Speaking, shares, speaking
from hebblm.adapt.methods.rule import Rule
from hebblm.memory.ngram_rows import NGramRows
from hebblm.text.vocabulary import Vocabulary
from hebblm.written import Written

MOST = 3  # entries of a word
AROUND = 8  # tokens before and after an entry

Floats = npt.NDArray[np.float64]


class Remembered(NamedTuple):
    """A memory entry that speaks for a word.

    Args:
        weight: what it gives of the word's probability, by cache, kNN-LM, Mixture and n-gram. Of a method without any
            of these its closeness, as a share of that of all neighbours.
        document: name of the document that it was read in; None where it has none, or where that is not known.
        token: its number in that document, from 0; None where that is not known.
        before: the text before the word there.
        after: the text behind it.
    """

    weight: float
    document: str | None
    token: int | None
    before: str
    after: str


class Explanation(NamedTuple):
    """Why a word is suggested.

    Args:
        word: itself.
        probability: after adaptation.
        unadapted: of the base with the weights of training, and rows of zeros for new words.
        shares: what each part of the method gives of the probability, by name; they add up to it.
        entries: those that weigh most, the first one most.
    """

    word: str
    probability: float
    unadapted: float
    shares: dict[str, float]
    entries: tuple[Remembered, ...]


def entry_weights(rule: Rule, batch: EvalBatch, written: Written, words: Sequence[int]) -> list[Floats]:
    """What each entry of the memory (M,) gives to each of some words after a single query.

    Entries that the memory has dropped are left out.
    """
    near, recent, ngrams = speaking(rule, batch)
    weights = np.zeros(len(written.ids))
    for found in near:
        np.add.at(weights, found.at.cpu().numpy(), found.weights.cpu().numpy())
    for found in recent:
        at, given = _in_memory(found, written)
        np.add.at(weights, at, given)
    given_words = [np.where(written.ids == word, weights, 0.0) for word in words]
    for ngram, share in ngrams:
        counted = batch.context.ngrams
        assert counted is not None
        contexts = ngram.rows(batch).contexts.repeat(len(words), 0)
        nothing = np.zeros(len(words), dtype=np.int64)
        once = share * counted.per_occurrence(NGramRows(contexts, np.array(words), nothing, nothing))
        for word, own, each in zip(words, given_words, once.T.cumsum(1), strict=True):
            there = np.flatnonzero(written.ids == word)
            own[there] += each[written.matches(there, contexts[0])]
    return given_words


def _in_memory(found: Speaking, written: Written) -> tuple[npt.NDArray[np.int64], Floats]:
    """Entries of a window that the memory still holds, and their weights."""
    held = min(len(written.stream), len(found.at))
    return written.stream[len(written.stream) - held :], found.weights.cpu().numpy()[len(found.at) - held :]


def explained(
    rule: Rule,
    batch: EvalBatch,
    suggested: Sequence[tuple[int, float, float]],
    vocabulary: Vocabulary,
    written: Written,
    base: str,
) -> list[Explanation]:
    """Explanations of suggested words after a single query.

    Args:
        rule: of the method.
        batch: with the query.
        suggested: id of each word, its probability, and that of the base as trained.
        vocabulary: of the model.
        written: what the memory was written from.
        base: how the base is called.
    """
    parts = shares(rule, batch)
    words = [index for index, *_ in suggested]
    found = []
    for (index, adapted, unadapted), weights in zip(
        suggested, entry_weights(rule, batch, written, words), strict=True
    ):
        given = {base if name == "base" else name: float(part[index]) for name, part in parts.items()}
        heaviest = np.lexsort((-np.arange(len(weights)), -weights))[:MOST]  # of equal ones the latest
        entries = tuple(
            _remembered(entry, weights[entry], written, vocabulary) for entry in heaviest.tolist() if weights[entry] > 0
        )
        found.append(Explanation(vocabulary[index], adapted, unadapted, given, entries))
    return found


def _remembered(entry: int, weight: float, written: Written, vocabulary: Vocabulary) -> Remembered:
    before, after = (vocabulary.join(ids.tolist()) for ids in written.around(entry, AROUND))
    document = int(written.documents[entry])
    known = document >= 0
    return Remembered(
        float(weight),
        written.names[document] if known else None,
        int(written.tokens[entry]) if known else None,
        before,
        after,
    )
