"""Accuracy of the whole words that methods suggest with a model of pieces, at some of a text's words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.rule import Rule
from hebblm.evaluation.accuracy import LISTED, NEVER, NOT_ASKED, Ints, letters_of
from hebblm.evaluation.observers import Notes
from hebblm.models.base import StreamBase
from hebblm.report.accuracy import Guesses
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import UNK
from hebblm.text.graphemes import graphemes
from hebblm.words_ahead import WIDTH, Expect, PieceTexts, words_ahead

LONG_LIST = 10  # words; after it a word's 1/rank is 0


class Place(NamedTuple):
    """A word that is asked for: its number in the text, and where its pieces begin and end."""

    word: int
    begin: int
    end: int


def places_of(stream: EvaluationStream, asked: int | Sequence[int]) -> list[Place]:
    """Return so many evenly spread words, or those of some numbers, that begin with a piece of their own.

    The last word is never asked for: it may be cut off.
    """
    assert stream.pieces is not None
    first, last, words = stream.pieces.first, stream.pieces.last, stream.reported
    begins = np.flatnonzero(np.r_[len(first) > 0, first[1:] > last[:-1]])
    ends = np.searchsorted(first, first[begins], side="right")
    unknown = words.symbols.index(UNK) if UNK in words.symbols else NEVER
    found = np.stack([first[begins], begins, ends], 1)[(words.targets[first[begins]] != unknown) & (ends < len(first))]
    if isinstance(asked, int):
        found = found[np.unique(np.linspace(0, len(found) - 1, asked).astype(int))] if len(found) else found
    else:
        found = found[np.isin(found[:, 0], asked)]
    return [Place(*row) for row in found.tolist()]


class Expectations:
    """Distributions of methods after pieces that follow a place; the base reads each beginning of a word once.

    Args:
        base: it stands at the place.
        context: head, memory and counts as they are there.
        state: (D,) hidden state of the place.
        past: the tokens before it, as many as n-grams look at.
    """

    def __init__(self, base: StreamBase, context: Context, state: Tensor, past: Sequence[int]) -> None:
        self._base, self._context, self._past = base, context, past
        self._states: dict[tuple[int, ...], Tensor] = {(): state}
        self._batches: dict[tuple[tuple[int, ...], ...], EvalBatch] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def log_probs(self, name: str, rule: Rule, rows: Sequence[tuple[int, ...]]) -> Tensor:
        """Return log-probabilities (R, V) in nats of a method after rows of pieces."""
        if left := [row for row in rows if (name, row) not in self._known]:
            found = rule.log_probs(self._batch(tuple(left))).cpu()
            self._known |= {(name, row): each for row, each in zip(left, found, strict=True)}
        return torch.stack([self._known[name, row] for row in rows])

    def _batch(self, rows: tuple[tuple[int, ...], ...]) -> EvalBatch:
        """Return the queries after rows of pieces; methods that ask for the same ones share them."""
        if rows not in self._batches:
            left = [row for row in rows if row not in self._states]
            for row, states in zip(left, self._base.branches([self._ids(row) for row in left]), strict=True):
                self._states |= {row[: at + 1]: state for at, state in enumerate(states)}
            states = torch.stack([self._states[row] for row in rows])
            self._batches[rows] = EvalBatch.after(rows, states, self._context, self._past)
        return self._batches[rows]

    def _ids(self, row: tuple[int, ...]) -> Tensor:
        return torch.tensor(row, device=self._context.head.weight.device)


class Asked(NamedTuple):
    """A word that is asked for: without blanks, its log-probability in nats, and the pieces (V,) it may begin with."""

    word: str
    own: float
    begins: Tensor


def rank_of(expect: Expect, texts: PieceTexts, asked: Asked, shown: int, typed: str = "") -> int:
    """Return the rank of a word among new whole words that begin with some letters, NEVER below a list.

    Args:
        expect: log-probabilities (R, V) in nats after rows of pieces.
        texts: what each piece does to the word before it.
        asked: the word.
        shown: length of the list.
        typed: the letters.
    """
    word, own, begins = asked
    if own == -math.inf:
        return NEVER
    width = max(3 * shown, WIDTH)
    ahead = words_ahead(expect, texts, shown, width, begins=begins, typed=typed, above=own)
    words = [found.word for found, _ in ahead]
    return words.index(word) + 1 if word in words else NEVER


def log_probability(expect: Expect, texts: PieceTexts, word: str, ids: Sequence[int]) -> float:
    """Return the log-probability in nats of a word as some pieces write it, and of its end if it is theirs too."""
    rows = expect([tuple(ids[:at]) for at in range(len(ids) + 1)])[0].double()  # (L + 1, V)
    passed = [float(row[index]) for row, index in zip(rows, ids, strict=False)]
    if word == "\n":  # a piece of blanks may come first
        breaks = next(at for at in range(len(ids)) if "\n" in texts.text(ids[: at + 1]))
        return sum(passed[:breaks]) + float(rows[breaks, texts.breaks].logsumexp(0))
    whole = texts.text(ids)
    goes_on = len(whole) > whole.index(word) + len(word) if word in whole else False
    return sum(passed) + (0.0 if goes_on else float(rows[-1, texts.ends].logsumexp(0)))


@dataclass(slots=True)
class WordsAsked(Notes):
    """The rank of some words of a text among the whole words that each method expects there, and the letters to type.

    Its columns have one row per word: its ``word`` number, and per numbered method its ``rank`` in a list of ten and
    the letters ``typed`` until a list of three has it, both NEVER without it.

    Args:
        rules: rules by name.
        texts: what each piece does to the word before it.
        stream: the text.
        places: the words that are asked for, in the order of the text.
    """

    rules: Mapping[str, Rule]
    texts: PieceTexts
    stream: EvaluationStream
    places: Sequence[Place]

    def ask(self, base: StreamBase, context: Context, begin: int, end: int) -> None:
        """Ask for the words that begin in an interval that the base is about to read; it stays where it stands."""
        places = [place for place in self.places if begin <= place.begin < end]
        if not places:
            return
        inputs = torch.from_numpy(self.stream.inputs).to(context.head.weight.device)
        with base.aside():
            for place in places:
                state = base.read(inputs[begin : place.begin + 1])[-1]
                begin, order = place.begin + 1, 0 if context.ngrams is None else context.ngrams.order
                past = self.stream.ids[max(0, place.begin - order) : place.begin].tolist()
                self._ask(place, Expectations(base, context, state, past))

    def _ask(self, place: Place, ahead: Expectations) -> None:
        assert self.stream.pieces is not None
        word, ids = self.stream.pieces.texts[place.word], self.stream.ids[place.begin : place.end].tolist()
        new = (
            place.begin == 0 or self.texts.text(self.stream.ids[place.begin - 1 : place.begin].tolist())[-1:].isspace()
        )
        begins = self.texts.plain & (self.texts.ends | new)  # after a word, a blank begins the next one
        columns = {"word": place.word}
        for number, (name, rule) in enumerate(self.rules.items()):

            def expect(rows: Sequence[tuple[int, ...]], name: str = name, rule: Rule = rule) -> tuple[Tensor, Tensor]:
                log_probs = ahead.log_probs(name, rule, rows)
                return log_probs, log_probs

            asked = Asked(word, log_probability(expect, self.texts, word, ids), begins)
            ranked = partial(rank_of, expect, self.texts, asked)
            rank = columns[f"rank {number}"] = ranked(LONG_LIST)
            columns[f"typed {number}"] = 0 if 0 < rank <= LISTED else _letters(word, partial(ranked, LISTED))
        self.add({name: torch.tensor([value]) for name, value in columns.items()})

    def guesses(self, stream: EvaluationStream) -> dict[str, Guesses]:
        """Return ranks and keystrokes of words, by method."""
        columns, letters = self.columns(), letters_of(stream)
        found = {}
        for number, name in enumerate(self.rules):
            rank, keys = np.full(len(letters), NOT_ASKED), letters + 1
            if columns:
                rank[columns["word"]] = columns[f"rank {number}"]
                typed: Ints = columns[f"typed {number}"]
                keys[columns["word"]] = np.where(typed == NEVER, keys[columns["word"]], typed + 1)
            found[name] = Guesses(rank, keys)
        return found


def _letters(word: str, rank: Callable[[str], int]) -> int:
    """Return the fewest letters of a word, but not all, after which a list has it; NEVER if none."""
    letters = graphemes(word)
    low, high = 1, len(letters)  # each further letter leaves fewer words before it
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if rank("".join(letters[:middle])) != NEVER else (middle + 1, high)
    return low if low < len(letters) else NEVER
