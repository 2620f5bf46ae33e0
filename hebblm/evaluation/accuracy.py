"""Accuracy of a method's suggestions where tokens are words: the rank of each, and the letters to
type for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.observers import Notes
from hebblm.report.result.accuracy import Guesses
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import EOS, FAIRSEQ_SPECIALS, UNK
from hebblm.text.graphemes import graphemes

Ints = npt.NDArray[np.int64]
LAST = chr(0x10FFFF)  # after every letter
LISTED = 3  # words that a list shows
NEVER = -1
NOT_ASKED = 0  # the rank of a word that was not asked for


class Places(NamedTuple):
    """Places in the sorted list of all words of those that begin with the first 0, 1, ... letters
    of a word.
    """

    begins: Ints  # (L,)
    ends: Ints  # (L,)


class TypedWords:
    """Words by their letters; ends of line and special symbols are never listed.

    Args:
        symbols: (V,) the words.
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self.letters = list(symbols)
        signs = {*FAIRSEQ_SPECIALS, EOS, UNK, ""}
        listed = [index for index, word in enumerate(self.letters) if word not in signs]
        listed.sort(key=self.letters.__getitem__)
        self.listed = torch.tensor(listed)  # (L,) ids in the order of their letters
        self._sorted = [self.letters[index] for index in listed]
        self._known: dict[int, Places] = {}

    def places(self, index: int) -> Places:
        """Return the words left while you type one, before its last letter; empty for symbols that
        are never listed.
        """
        if index not in self._known:
            word = self.letters[index]
            at = bisect_left(self._sorted, word)
            is_listed = self._sorted[at : at + 1] == [word]
            letters = graphemes(word) if is_listed else []
            begins = []
            ends = []
            for count in range(len(letters)):
                typed = "".join(letters[:count])
                begins.append(bisect_left(self._sorted, typed))
                ends.append(bisect_left(self._sorted, typed + LAST))
            self._known[index] = Places(
                np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)
            )
        return self._known[index]


@dataclass(slots=True)
class AccuracyLog(Notes):
    """An observer that records the rank of each token among all possible ones, for every method.

    Its columns have one row per token and one pair per numbered method: its ``rank``, from 1, and
    the letters ``typed`` until a list of three has it. Words without a row are ``NEVER`` listed.
    Among equal probabilities the lower id comes first; ``<unk>`` does not count as a word.

    Args:
        predictors: rules by name.
        words: words of the stream, by id.
        unknown: id of ``<unk>``, if there is one.
    """

    predictors: Mapping[str, Predictor]
    words: TypedWords
    unknown: int | None
    _ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        columns: dict[str, Tensor] = {}
        for number, predictor in enumerate(self.predictors.values()):
            above = self._above(predictor.log_probs(batch).cpu(), targets.cpu())  # (N, V)
            there = targets.cpu() < len(batch.head.weight)
            columns[f"rank {number}"] = (1 + above.sum(1)).where(there, NEVER)
            columns[f"typed {number}"] = self._typed(above, targets.cpu()).where(there, NEVER)
        self.add(columns)

    def _above(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """Return which words (N, V) come before the targets."""
        rows = log_probs.shape[1]
        total = len(self.words.letters)
        asked = targets.clamp_max(rows - 1)[:, None]
        of_target = log_probs.gather(1, asked)
        ids = torch.arange(rows)
        above = (log_probs > of_target) | ((log_probs == of_target) & (ids < asked))
        if self.unknown is not None:
            above[:, self.unknown] = False
        return torch.nn.functional.pad(above, (0, total - rows))

    def _typed(self, above: Tensor, targets: Tensor) -> Tensor:
        """Return the letters (N,) typed until each word is listed, NEVER if that is not before its
        last letter.
        """
        before = above[:, self.words.listed].cumsum(1, dtype=torch.int32).numpy()  # (N, L)
        before = np.pad(before, ((0, 0), (1, 0)))
        typed = np.full(len(targets), NEVER)
        for row, index in enumerate(targets.tolist()):
            begins, ends = self.words.places(index)
            listed = np.flatnonzero(before[row, ends] - before[row, begins] < LISTED)
            if len(listed):
                typed[row] = listed[0]
        return torch.from_numpy(typed)

    def guesses(self, stream: EvaluationStream) -> dict[str, Guesses]:
        """Return ranks and keystrokes of words, by method."""
        columns = self.columns()
        letters = letters_of(stream)
        by_name = {}
        for number, name in enumerate(self.predictors):
            rank = columns[f"rank {number}"]
            typed = columns[f"typed {number}"]
            by_name[name] = Guesses(rank, np.where(typed == NEVER, letters, typed) + 1)
        return by_name


def letters_of(stream: EvaluationStream) -> Ints:
    """Return the letters (U,) of the words of a stream, 0 for ends of line and ``<unk>``, which
    nobody types.

    A letter is a grapheme: it may have several code points, as an accent or a vowel sign of its
    own.
    """
    words = stream.reported
    signs = {*FAIRSEQ_SPECIALS, EOS, UNK}
    lengths = np.zeros(len(words.symbols), dtype=np.int64)
    for index, symbol in enumerate(words.symbols):
        if symbol not in signs:
            lengths[index] = len(graphemes(symbol.strip()))
    letters: Ints = lengths[words.targets]
    return letters
