"""How a stream is cut: what is read, and what is predicted, at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hebblm.memory import AnyMemory

BLOCK = 100  # tokens that a fixed base's methods predict at once, where updates are more frequent than that
READ_AHEAD = 200  # tokens that a fixed base reads at a time, whatever the update interval


@dataclass(frozen=True, slots=True)
class Pace:
    """How many tokens are taken at once.

    Args:
        every: tokens between two updates.
        block: the most tokens that are predicted together, a multiple of ``every``.
        ahead: tokens that the base reads together, a multiple of ``block``.
    """

    every: int
    block: int
    ahead: int

    @classmethod
    def of(cls, every: int, *, ahead: bool) -> Pace:
        """Return the pace of a base that may read and be predicted from ``ahead`` of updates, or may not."""
        if not ahead:
            return cls(every, every, every)
        block = max(1, BLOCK // every) * every
        return cls(every, block, max(1, READ_AHEAD // block) * block)

    def blocks(self, begin: int, end: int, memory: AnyMemory | None) -> Iterator[tuple[int, int]]:
        """Yield begin and end of what is predicted together, between two tokens of the stream.

        Args:
            begin: first token; an update precedes it.
            end: behind the last one.
            memory: asked, as it is when a block begins, how long that may be; None if nothing is written to one.
        """
        while begin < end:
            span = None if memory is None else memory.span(self.every)
            stop = min(begin + (self.block if span is None else min(self.block, span)), end)
            yield begin, stop
            begin = stop
