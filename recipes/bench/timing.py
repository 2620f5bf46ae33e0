"""Timing by turns: what is compared runs in the same minutes on the same machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MINIMUM_REPEATS = 5  # from fewer no median should be taken
Tick = Callable[[], None]
Turn = Callable[[], tuple[float, int]]
"""Does something once and returns the seconds it took and the tokens it processed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the extremes it was taken from."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the median, the least and the largest of ``values``."""
        return cls(statistics.median(values), min(values), max(values))

    def named(self, name: str) -> dict[str, float]:
        """Return the median by a name and the extremes by that name with ``_min`` and ``_max``."""
        return {name: self.median, f"{name}_min": self.low, f"{name}_max": self.high}

    def to_json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.low, "max": self.high}


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a call and the tokens it processed, round by round."""

    seconds: tuple[float, ...]
    tokens: tuple[int, ...]

    def a_token(self) -> list[float]:
        """Return the seconds a token of each round."""
        return [seconds / tokens for seconds, tokens in zip(self.seconds, self.tokens, strict=True)]

    def milliseconds(self) -> Spread:
        return Spread.of([1000 * value for value in self.a_token()])

    def times(self, other: Timing) -> Spread:
        """Return how many times the cost of ``other`` a token costs here, round by round."""
        pairs = zip(self.a_token(), other.a_token(), strict=True)
        return Spread.of([mine / theirs for mine, theirs in pairs])

    def to_json(self) -> dict[str, Any]:
        return {
            "ms_per_token": self.milliseconds().to_json(),
            "tokens": list(self.tokens),
            "seconds": list(self.seconds),
        }


def stopwatch(
    call: Callable[[], object],
    tokens: int,
    device: torch.device,
    before: Callable[[], object] = lambda: None,
) -> Turn:
    """Return a turn that calls ``call``, which processes ``tokens``; work queued on a GPU is waited
    for.

    ``before`` is called first and not timed: what comes before a part of a computation leaves the
    caches as they are.
    """

    from hebblm.adapt.work import clock_of  # it loads torch

    clock = clock_of(device)

    def turn() -> tuple[float, int]:
        before()
        started = clock()
        call()
        return clock() - started, tokens

    return turn


def interleave(
    turns: Mapping[str, Turn], repeats: int, tick: Tick = lambda: None
) -> dict[str, Timing]:
    """Run each once to warm up, then in turn: first, second, ..., first, second, ...; return the
    times by name.
    """
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in turns}
    for number in range(repeats + 1):
        for name, turn in turns.items():
            found = turn()
            if number > 0:
                taken[name].append(found)
        tick()
    return {
        name: Timing(tuple(seconds for seconds, _ in rounds), tuple(tokens for _, tokens in rounds))
        for name, rounds in taken.items()
    }


def exponent(cost: Mapping[float, float]) -> float:
    """Return the power with which a cost grows with a size: the slope of log cost over log size, by
    least squares.
    """
    points = [(math.log(size), math.log(value)) for size, value in cost.items()]
    return statistics.linear_regression(*zip(*points, strict=True)).slope
