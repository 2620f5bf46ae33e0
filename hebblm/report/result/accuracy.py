"""Numbers for people: how often the next word is among the suggestions, and the keystrokes that
they save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hebblm.io.files import Count
from hebblm.report.result.parts import Bootstrap, Gain, bootstrap_gains

WORDS_ASKED = 200  # of a model of pieces
MEASURES = {
    "top1": "First, %",
    "top5": "Among five, %",
    "reciprocal_rank": "1/rank",
    "saved": "Keys saved, %",
}
"""Names of the measures, and their headings."""


class Guesses(NamedTuple):
    """Ranks and keystrokes of a method's suggestions."""

    # (U,) of each word, from 1; 0 where it was not asked for, below if no list has it
    rank: NDArray[np.int64]
    keys: NDArray[np.int64]  # (U,) keystrokes of each word with a list of three


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well a method suggests the words of one part of a stream."""

    part: str
    tokens: Count  # words of it, those that the text itself has as <unk> left out
    top1: float | None  # share of words that are the most probable one; None for an empty part
    top5: float | None  # share that are among the five most probable ones
    reciprocal_rank: float | None  # mean of 1 / rank
    # share of keystrokes that a list of three saves; None where nothing is typed
    saved: float | None
    # by measure what it gains over the unadapted model, and both ends of the interval; None where
    # that is not known
    gains: Mapping[str, tuple[float | None, float | None, float | None]]


def accuracy_report(
    guesses: Mapping[str, Guesses],
    letters: NDArray[np.int64],
    there: NDArray[np.bool_],
    parts: Mapping[str, NDArray[np.bool_]],
    config: Bootstrap,
) -> dict[str, tuple[Accuracy, ...]]:
    """Measure how well every method suggests words, part by part.

    Args:
        guesses: by method, for words (U,).
        letters: (U,) letters of each word; 0 for symbols that nobody types.
        there: (U,) words that count: not those that the text itself has as ``<unk>``.
        parts: (U,) bool, by name.
        config: options of the intervals.

    Returns:
        By method, the parts in their order. Without the list a word takes its letters and a space.
        With it, you type letters until the list of the words that begin with them has the word, and
        one more key takes it.
    """
    one = there.astype(np.float64)  # (U,)
    values = {name: measures(ranked, letters) for name, ranked in guesses.items()}
    # (U,) what each word counts: keystrokes for those that are saved, else one
    weights = dict.fromkeys(MEASURES, one)
    weights["saved"] = np.where(letters > 0, one * (letters + 1), 0)
    gains: dict[str, dict[str, tuple[Gain, ...]]] = {}
    for measure, weight in weights.items():
        lost = {name: -parts_of[measure] for name, parts_of in values.items()}
        counted = {part: mask & (weight > 0) for part, mask in parts.items()}
        gains[measure] = bootstrap_gains(lost, counted, config, weight)

    def accuracy(name: str, at: int, part: str) -> Accuracy:
        mask = parts[part]
        means: dict[str, float | None] = {}
        over = {}
        for measure, weight in weights.items():
            total = float(weight[mask].sum())
            means[measure] = None
            if total:
                means[measure] = float(values[name][measure][mask & (weight > 0)].sum()) / total
            if name in gains[measure]:
                gain = gains[measure][name][at]
                over[measure] = (gain.gain, gain.low, gain.high)
        return Accuracy(part, int((mask & there).sum()), **means, gains=over)

    reports: dict[str, tuple[Accuracy, ...]] = {}
    for name in guesses:
        reports[name] = tuple(accuracy(name, at, part) for at, part in enumerate(parts))
    return reports


def measures(guesses: Guesses, letters: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the part of each word (U,) in the sum of every measure."""
    listed = guesses.rank > 0
    return {
        "top1": (guesses.rank == 1).astype(np.float64),
        "top5": (listed & (guesses.rank <= 5)).astype(np.float64),
        "reciprocal_rank": np.where(listed, 1 / np.where(listed, guesses.rank, 1), 0.0),
        "saved": (letters + 1 - guesses.keys).astype(np.float64),
    }
