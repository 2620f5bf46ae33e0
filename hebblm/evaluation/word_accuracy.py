"""Accuracy of the whole words that methods suggest with a model of pieces, at some of a text's
words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.accuracy import LISTED, NEVER, NOT_ASKED, Ints, letters_of
from hebblm.evaluation.observers import Notes
from hebblm.models.base import StreamBase
from hebblm.online.word_beam import Expect, Place, WordSearch
from hebblm.report.result.accuracy import Guesses
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import UNK
from hebblm.text.graphemes import graphemes
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.word_ends import without_closing

LONG_LIST = 10  # words; after it a word's 1/rank is 0
BUDGET = 64  # beginnings of words that are followed for a list, at most


class AskedPlace(NamedTuple):
    """A word that is asked for: its number in the text, and where its pieces begin and end."""

    word: int
    begin: int
    end: int


def places_of(stream: EvaluationStream, asked: int | Sequence[int]) -> list[AskedPlace]:
    """Return so many evenly spread words, or those of some numbers, that begin with a piece of
    their own.

    The last word is never asked for: it may be cut off.
    """
    assert stream.pieces is not None
    first = stream.pieces.first
    last = stream.pieces.last
    words = stream.reported
    begins = np.flatnonzero(np.r_[len(first) > 0, first[1:] > last[:-1]])
    ends = np.searchsorted(first, first[begins], side="right")
    unknown = words.symbols.index(UNK) if UNK in words.symbols else NEVER
    numbers = first[begins]
    possible = (words.targets[numbers] != unknown) & (ends < len(first))
    places = np.stack([numbers, begins, ends], 1)[possible]
    if not isinstance(asked, int):
        places = places[np.isin(places[:, 0], asked)]
    elif len(places):
        evenly = np.linspace(0, len(places) - 1, asked).astype(int)
        places = places[np.unique(evenly)]
    return [AskedPlace(*row) for row in places.tolist()]


class Expectations:
    """Distributions of methods after pieces that follow a place; the base reads each beginning of a
    word once.

    Args:
        base: it stands at the place.
        context: head, memory and counts as they are there.
        state: (D,) hidden state of the place.
        past: the tokens before it, as many as n-grams look at.
    """

    def __init__(
        self, base: StreamBase, context: Context, state: Tensor, past: Sequence[int]
    ) -> None:
        self._base = base
        self._context = context
        self._past = past
        self._states: dict[tuple[int, ...], Tensor] = {(): state}
        self._batches: dict[tuple[tuple[int, ...], ...], EvalBatch] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def log_probs(self, name: str, predictor: Predictor, rows: Sequence[tuple[int, ...]]) -> Tensor:
        """Return log-probabilities (R, V) in nats of a method after rows of pieces."""
        if left := [row for row in rows if (name, row) not in self._known]:
            computed = predictor.log_probs(self._batch(tuple(left))).cpu()
            for row, log_probs in zip(left, computed, strict=True):
                self._known[name, row] = log_probs
        return torch.stack([self._known[name, row] for row in rows])

    def _batch(self, rows: tuple[tuple[int, ...], ...]) -> EvalBatch:
        """Return the queries after rows of pieces; methods that ask for the same ones share
        them.
        """
        if rows not in self._batches:
            left = [row for row in rows if row not in self._states]
            read = self._base.continuations([self._ids(row) for row in left])
            for row, states in zip(left, read, strict=True):
                for at, state in enumerate(states):
                    self._states[row[: at + 1]] = state
            asked = torch.stack([self._states[row] for row in rows])
            self._batches[rows] = EvalBatch.after(rows, asked, self._context, self._past)
        return self._batches[rows]

    def _ids(self, row: tuple[int, ...]) -> Tensor:
        return torch.tensor(row, device=self._context.head.weight.device)


class Asked(NamedTuple):
    """A word that is asked for: without punctuation that follows, its pieces, and whether a word
    must end before it.
    """

    word: str
    ids: tuple[int, ...]
    new: bool


def rank_of(expect: Expect, texts: PieceTexts, asked: Asked, shown: int, typed: str = "") -> int:
    """Return the rank of a word among whole words that begin with some letters, NEVER below a list.

    The word's own pieces are always followed, so that its probability is known, however small.

    Args:
        expect: log-probabilities (R, V) in nats after R rows of pieces; it remembers them.
        texts: what each piece does to the word before it.
        asked: the word.
        shown: length of the list.
        typed: the letters.
    """
    search = WordSearch(expect, texts, Place(typed.encode(), stripped=True, new=asked.new))
    search.follow(asked.ids)
    return search.rank(asked.word, shown, BUDGET) or NEVER


@dataclass(slots=True)
class WordsAsked(Notes):
    """The rank of some words of a text among the whole words that each method expects there, and
    the letters to type.

    Its columns have one row per word: its ``word`` number, and per numbered method its ``rank`` in
    a list of ten and the letters ``typed`` until a list of three has it, both NEVER without it.

    Args:
        predictors: rules by name.
        texts: what each piece does to the word before it.
        stream: the text.
        places: the words that are asked for, in the order of the text.
    """

    predictors: Mapping[str, Predictor]
    texts: PieceTexts
    stream: EvaluationStream
    places: Sequence[AskedPlace]

    def ask(self, base: StreamBase, context: Context, begin: int, end: int) -> None:
        """Ask for the words that begin in an interval that the base is about to read; it stays
        where it stands.
        """
        places = [place for place in self.places if begin <= place.begin < end]
        if not places:
            return
        inputs = torch.from_numpy(self.stream.inputs).to(context.head.weight.device)
        with base.preserve_state():
            for place in places:
                state = base.read(inputs[begin : place.begin + 1])[-1]
                begin = place.begin + 1
                order = 0 if context.ngrams is None else context.ngrams.order
                past = self.stream.ids[max(0, place.begin - order) : place.begin].tolist()
                self._ask(place, Expectations(base, context, state, past))

    def _ask(self, place: AskedPlace, ahead: Expectations) -> None:
        assert self.stream.pieces is not None
        word = self.stream.pieces.texts[place.word]
        ids = self.stream.ids[place.begin : place.end].tolist()
        before = ""
        if place.begin:
            before = self.texts.text([int(self.stream.ids[place.begin - 1])])
        core = without_closing(word)
        asked = Asked(core, tuple(ids), new=bool(before) and not before[-1].isspace())
        after = len(graphemes(word)) - len(graphemes(core))  # punctuation is typed
        columns = {"word": place.word}
        for number, (name, predictor) in enumerate(self.predictors.items()):

            def expect(
                rows: Sequence[tuple[int, ...]], name: str = name, predictor: Predictor = predictor
            ) -> tuple[Tensor, Tensor]:
                log_probs = ahead.log_probs(name, predictor, rows)
                return log_probs, log_probs

            ranked = partial(rank_of, expect, self.texts, asked)
            rank = ranked(LONG_LIST)
            typed = 0
            if not 0 < rank <= LISTED:
                typed = _letters(core, partial(ranked, LISTED))
            if typed != NEVER:
                typed += after
            columns[f"rank {number}"] = rank
            columns[f"typed {number}"] = typed
        self.add({name: torch.tensor([value]) for name, value in columns.items()})

    def guesses(self, stream: EvaluationStream) -> dict[str, Guesses]:
        """Return ranks and keystrokes of words, by method."""
        columns = self.columns()
        letters = letters_of(stream)
        by_name = {}
        for number, name in enumerate(self.predictors):
            rank = np.full(len(letters), NOT_ASKED)
            keys = letters + 1
            if columns:
                rank[columns["word"]] = columns[f"rank {number}"]
                typed: Ints = columns[f"typed {number}"]
                keys[columns["word"]] = np.where(typed == NEVER, keys[columns["word"]], typed + 1)
            by_name[name] = Guesses(rank, keys)
        return by_name


def _letters(word: str, rank: Callable[[str], int]) -> int:
    """Return the fewest letters of a word, but not all, after which a list has it; NEVER if
    none.
    """
    letters = graphemes(word)
    low, high = 1, len(letters)  # each further letter leaves fewer words before it
    while low < high:
        middle = (low + high) // 2
        if rank("".join(letters[:middle])) != NEVER:
            high = middle
        else:
            low = middle + 1
    if low < len(letters):
        return low
    return NEVER
