"""A block of the stream that is predicted at once, each token from what was observed before it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive tokens, of one stream or several side by side, whose states are known before their labels are scored.

    Args:
        labels: (N,) int64, what followed each state. Row i's own label and later ones are never looked at for row i.
        visible: (N,) int64, row i is predicted when the first ``visible[i]`` rows were observed: at most i, ascending.
        used: rows that the last row sees, and with it any.
        written: whether observed rows are in the memory.
        streams: (N,) int64, which stream of its context each row is of; None for all of the first one.
    """

    labels: Tensor
    visible: Tensor
    used: int
    written: bool
    streams: Tensor | None = None

    @classmethod
    def of(cls, labels: Tensor, every: int, written: bool) -> Block:
        """Return a block of ``labels`` (N,) that starts with an update and has one each ``every`` tokens."""
        rows = torch.arange(len(labels), device=labels.device)
        return cls(labels, rows // every * every, (len(labels) - 1) // every * every, written)

    @classmethod
    def beside(cls, labels: Tensor, intervals: Sequence[Mapping[int, int]], written: bool) -> Block:
        """Return a block of several streams: in each interval, before which all are observed, first one, then another.

        Args:
            labels: (N,) in that order.
            intervals: rows by stream.
            written: see :class:`Block`.
        """
        where = labels.device
        sizes = torch.tensor([sum(rows.values()) for rows in intervals], device=where)
        before = sizes.cumsum(0) - sizes
        streams = torch.tensor([stream for rows in intervals for stream in rows], device=where)
        lengths = torch.tensor([length for rows in intervals for length in rows.values()], device=where)
        visible = before.repeat_interleave(sizes)
        return cls(labels, visible, int(before[-1]), written, streams.repeat_interleave(lengths))

    def by_stream(self) -> Iterator[tuple[int, Tensor | slice, Block]]:
        """Yield each stream, its rows, and the block that they are by themselves."""
        if self.streams is None:
            yield 0, slice(None), self
            return
        for stream in torch.unique(self.streams).tolist():
            rows = (self.streams == stream).nonzero().squeeze(1)
            visible = torch.searchsorted(rows, self.visible[rows].contiguous())
            yield stream, rows, Block(self.labels[rows], visible, int(visible[-1]), self.written)

    @property
    def causal(self) -> bool:
        """Say whether any row was observed before another one is predicted."""
        return self.used > 0

    @property
    def in_memory(self) -> Tensor:
        """(N,) how many of the block's rows the memory holds when each row is predicted."""
        return self.visible if self.written else torch.zeros_like(self.visible)
