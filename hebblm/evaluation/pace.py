"""Pace of reading: how many tokens of a stream are read, and predicted, at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hebblm.memory import AnyMemory

BLOCK = 100  # tokens that a fixed base's methods predict at once, where updates are more frequent than that
READ_AHEAD = 200  # tokens that a fixed base reads at a time, whatever the update interval


@dataclass(frozen=True, slots=True)
class Pace:
    """Numbers of tokens taken at once.

    Args:
        every: tokens of a stream between two updates.
        block: the most tokens of a stream that are predicted together, a multiple of ``every``.
        ahead: tokens of a stream that the base reads together, a multiple of ``block``.
        streams: how many write to one memory.
    """

    every: int
    block: int
    ahead: int
    streams: int = 1

    @classmethod
    def of(cls, every: int, *, ahead: bool, streams: int = 1, spread: bool = False) -> Pace:
        """Return the pace of a base that may read and be predicted from ``ahead`` of updates, or may not.

        Processes over which streams are ``spread`` tell each other their labels at every update.
        """
        if not ahead:
            return cls(every, every, every, streams)
        block = every if spread else max(1, BLOCK // (every * streams)) * every
        return cls(every, block, max(1, READ_AHEAD // block) * block, streams)

    def blocks(self, begin: int, end: int, memories: Sequence[AnyMemory]) -> Iterator[tuple[int, int]]:
        """Yield begin and end of what is predicted together, between two places of the streams.

        Args:
            begin: first token; an update precedes it.
            end: behind the last one.
            memories: that are written to, asked, as they are when a block begins, how long that may be.
        """
        rows = self.every * self.streams
        while begin < end:
            spans = [span // self.streams for memory in memories if (span := memory.span(rows)) is not None]
            stop = min(begin + min([self.block, *spans]), end)
            yield begin, stop
            begin = stop
