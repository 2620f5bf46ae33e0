"""Timer of a mini-batch's work, with pieces that several methods share: each piece, and which work
uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

Clock = Callable[[], float]


def clock_of(device: torch.device) -> Clock:
    """Return a clock, in seconds: on a CPU of the processor's time in all threads of this process;
    on a GPU of the time that passes, which waits for the device's work before it is read.

    What else runs on a processor changes the time that passes, and its own time much less.
    """
    if device.type != "cuda":
        return time.process_time

    def synchronized() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronized


@dataclass(eq=False, slots=True)
class Work:
    """Piece of work, compared by identity."""

    name: str  # to print; pieces of the same kind share it
    seconds: float = 0.0  # without the time of the pieces that it uses
    uses: set[Work] = field(default_factory=set)  # the pieces that it uses directly, ready or not

    def pieces(self) -> set[Work]:
        """All pieces that it uses, directly or through other pieces, each once."""
        reached: set[Work] = set()
        ahead = list(self.uses)
        while ahead:
            piece = ahead.pop()
            if piece not in reached:
                reached.add(piece)
                ahead += piece.uses
        return reached


class Stopwatch:
    """Timer of work that may contain other work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: list[Work] = []  # innermost last

    @contextmanager
    def time(self, name: str) -> Iterator[Work]:
        """Time the block; time measured within it counts only there."""
        work = Work(name)
        self._running.append(work)
        started = self._clock()
        try:
            yield work
        finally:
            took = self._clock() - started
            self._running.pop()
            work.seconds += took
            if self._running:
                self._running[-1].seconds -= took

    def use(self, piece: Work) -> None:
        """Record that the running work uses a piece."""
        if self._running:
            self._running[-1].uses.add(piece)


def name_of(key: Hashable) -> str:
    """Return a plain name for the key of a piece: ``("adapted", MbpaConfig())`` is ``adapted
    mbpa``.

    It leaves out numbers; settings and rules have the name of their type.
    """
    if isinstance(key, tuple):
        named = (
            part for part in key if isinstance(part, str) or hasattr(part, "__dataclass_fields__")
        )
        return " ".join(map(name_of, named))
    return key if isinstance(key, str) else type(key).__name__.removesuffix("Config").lower()
