"""Timer of a mini-batch's work, where some of it is done once for many: each piece, and who rests on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

Clock = Callable[[], float]


def clock_of(device: torch.device) -> Clock:
    """Return a clock, in seconds, that waits for what a device was given to do before it is read."""
    if device.type != "cuda":
        return time.perf_counter

    def synchronized() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronized


@dataclass(eq=False, slots=True)
class Work:
    """Piece of work, told apart by identity.

    Args:
        name: for a reader; pieces of the same kind share it.
        seconds: without those of the pieces that it rests on.
        uses: the pieces it asked for itself, whether they were ready or not.
    """

    name: str
    seconds: float = 0.0
    uses: set[Work] = field(default_factory=set)

    def pieces(self) -> set[Work]:
        """Return all pieces that it rests on, each once, those of its pieces included."""
        found: set[Work] = set()
        ahead = list(self.uses)
        while ahead:
            piece = ahead.pop()
            if piece not in found:
                found.add(piece)
                ahead += piece.uses
        return found


class Stopwatch:
    """Timer of work that may contain other work.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: list[Work] = []  # innermost last

    @contextmanager
    def time(self, name: str) -> Iterator[Work]:
        """Time what is done inside; what is timed within counts there alone."""
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
        """Note that what runs now rests on a piece."""
        if self._running:
            self._running[-1].uses.add(piece)


def name_of(key: Hashable) -> str:
    """Return a plain name for the key of a piece: its words, and for settings and rules that of their type.

    ``("window", 500)`` is ``window``, ``("adapted", MbpaConfig())`` is ``adapted mbpa``.
    """
    if isinstance(key, tuple):
        told = (part for part in key if isinstance(part, str) or hasattr(part, "__dataclass_fields__"))
        return " ".join(map(name_of, told))
    return key if isinstance(key, str) else type(key).__name__.removesuffix("Config").lower()
