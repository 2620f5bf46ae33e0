"""Streams that are read side by side: where each lies in the text, and how much is read and scored
at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.block import Block
from hebblm.errors import UserError
from hebblm.memory import AnyMemory
from hebblm.runtime.ranks import partition

ROWS = 200  # tokens of several streams that are scored at once, unless one stream has more
# tokens that a fixed base's methods predict at once, if updates are more frequent than that
BLOCK = 100
READ_AHEAD = 500  # tokens that a fixed base reads at a time, whatever the update interval
MemoryScope = Literal["shared", "stream"]


class Run(NamedTuple):
    """Consecutive tokens of a stream, counted from its beginning."""

    stream: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens that are scored at once, all from earlier observations."""

    owner: int  # stream whose own memory scores them, 0 if all streams share one
    intervals: tuple[tuple[Run, ...], ...]  # one or more; their runs are of different streams each

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for interval in self.intervals for run in interval)


@dataclass(frozen=True, slots=True)
class Layout:
    """The streams of a text; this process numbers its own from 0."""

    begins: tuple[int, ...]  # (B,) place of each stream's first token in the text
    lengths: tuple[int, ...]  # (B,) tokens of each
    scope: MemoryScope = "shared"  # shared: all streams share memory and counts
    rank: int = 0  # of the process that reads here
    ranks: int = 1  # P, over which the streams are divided in their order

    @classmethod
    def of(
        cls,
        total: int,
        streams: int = 1,
        *,
        scope: MemoryScope = "shared",
        borders: Sequence[int] = (),
    ) -> Layout:
        """Cut a text of so many tokens into contiguous streams of about the same length.

        The cuts are made at ``borders``, where documents begin, if there are enough of them.
        """
        if streams > total:
            raise UserError(f"streams = {streams} are more than the {total:,} tokens of the text")
        cuts = np.arange(1, streams) * total // streams
        places = np.unique([place for place in borders if 0 < place < total])
        if streams > 1 and len(places) >= streams - 1:
            cuts = _nearest(cuts, places)
        begins = np.array([0, *cuts])
        lengths = np.diff([*begins, total])
        return cls(tuple(begins.tolist()), tuple(lengths.tolist()), scope)

    def part(self, rank: int, ranks: int) -> Layout:
        """Return the layout of the same text for one of several processes."""
        return replace(self, rank=rank, ranks=ranks)

    @property
    def own_streams(self) -> range:
        """Numbers of the streams that this process reads."""
        return partition(len(self.begins), self.rank, self.ranks)

    @property
    def streams(self) -> int:
        return len(self.own_streams)

    @property
    def together(self) -> int:
        """Streams that are written to one memory."""
        return len(self.begins) if self.scope == "shared" else 1

    @property
    def streams_a_context(self) -> int:
        """Streams among them that this process reads."""
        return self.streams if self.scope == "shared" else 1

    @property
    def spread(self) -> bool:
        """Whether several processes share a memory, so that all of them write before any goes
        on.
        """
        return self.ranks > 1 and self.scope == "shared"

    @property
    def longest(self) -> int:
        """Tokens of the longest stream of all."""
        return max(self.lengths)

    @property
    def text(self) -> slice:
        """Span of the text that this process reads; its streams follow one another."""
        last = self.own_streams[-1]
        return slice(self.begins[self.own_streams[0]], self.begins[last] + self.lengths[last])

    def tokens(self, begin: int, end: int) -> int:
        """Return the number of tokens that all streams have between two places."""
        return sum(max(0, min(end, length) - begin) for length in self.lengths)

    def cut(self, ids: Tensor, begin: int, end: int) -> Tensor:
        """Return some tokens of each stream, (B, n) of ids (T,), or (n,) for a single stream.

        After the end of a stream come other tokens as padding.
        """
        if len(self.begins) == 1:
            return ids[begin:end]
        begins = torch.tensor(
            [self.begins[stream] for stream in self.own_streams], device=ids.device
        )[:, None]
        rows = ids[(begins + torch.arange(begin, end, device=ids.device)).clamp_max(len(ids) - 1)]
        return rows if self.streams > 1 else rows[0]

    def groups(self, begin: int, end: int, every: int) -> Iterator[Group]:
        """Yield the tokens of all streams between two places; an interval of ``every`` tokens is
        observed at once.
        """
        starts = range(begin, end, every)
        intervals = [self._runs(start, min(start + every, end)) for start in starts]
        if self.scope == "stream":
            for stream in range(self.streams):
                of_stream = [
                    tuple(run for run in runs if run.stream == stream) for runs in intervals
                ]
                if of_stream[0]:
                    yield Group(stream, tuple(runs for runs in of_stream if runs))
        elif len(intervals) > 1:
            yield Group(0, tuple(intervals))
        else:
            yield from (Group(0, (runs,)) for runs in _packed(intervals[0]))

    def rounds(self, begin: int, end: int, every: int) -> Iterator[Group | None]:
        """Yield the groups of :meth:`groups`; if processes share a memory, then None until no other
        has any left.
        """
        yield from (groups := list(self.groups(begin, end, every)))
        if self.spread:
            parts = (self.part(rank, self.ranks) for rank in range(self.ranks))
            most = max(sum(1 for _ in part.groups(begin, end, every)) for part in parts)
            yield from [None] * (most - len(groups))

    def _runs(self, begin: int, end: int) -> tuple[Run, ...]:
        """Return the runs of an interval; streams that have ended have none."""
        ends = (min(end, self.lengths[stream]) for stream in self.own_streams)
        return tuple(Run(stream, begin, stop) for stream, stop in enumerate(ends) if stop > begin)

    def block(self, group: Group, labels: Tensor, every: int, *, written: bool) -> Block:
        if self.streams_a_context == 1:
            return Block.of(labels, every, written)
        sizes = [
            {run.stream: run.end - run.begin for run in interval} for interval in group.intervals
        ]
        return Block.of_streams(labels, sizes, written)

    def states(self, group: Group, states: Tensor, begin: int) -> Tensor:
        """Return hidden states (N, D) of a group, from those of all streams (B, n, D) from place
        ``begin`` on.
        """
        return _joined(
            [states[run.stream, run.begin - begin : run.end - begin] for run in group.runs]
        )

    def labels(self, group: Group, targets: Tensor) -> Tensor:
        return _joined([targets[slice(*self._place(run))] for run in group.runs])

    def places(self, group: Group) -> npt.NDArray[np.int64]:
        """Return the places (N,) of a group's tokens in the text."""
        return np.concatenate([np.arange(*self._place(run)) for run in group.runs])

    def _place(self, run: Run) -> tuple[int, int]:
        begin = self.begins[self.own_streams[run.stream]]
        return begin + run.begin, begin + run.end


@dataclass(frozen=True, slots=True)
class Pace:
    """Numbers of tokens taken at once."""

    every: int  # tokens of a stream between two updates
    block: int  # the most tokens of a stream that are predicted together, a multiple of every
    ahead: int  # tokens of a stream that the base reads together, a multiple of block
    streams: int = 1  # number of streams that write to one memory

    @classmethod
    def of(cls, every: int, *, ahead: bool, streams: int = 1, spread: bool = False) -> Pace:
        if not ahead:  # the base or its vocabulary changes with each update
            return cls(every, every, every, streams)
        # Processes that share the streams exchange their labels at every update.
        block = every if spread else max(1, BLOCK // (every * streams)) * every
        # A pass over many streams is long enough with few tokens of each.
        blocks = max(1, READ_AHEAD // (block * streams))
        return cls(every, block, blocks * block, streams)

    def blocks(
        self, begin: int, end: int, memories: Sequence[AnyMemory]
    ) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the tokens that are predicted together, between two places of the
        streams.
        """
        rows = self.every * self.streams
        while begin < end:
            spans = [
                span // self.streams
                for memory in memories
                if (span := memory.span(rows)) is not None
            ]
            stop = min(begin + min([self.block, *spans]), end)
            yield begin, stop
            begin = stop


def _packed(runs: Sequence[Run]) -> Iterator[tuple[Run, ...]]:
    packed: list[Run] = []
    for run in runs:
        if packed and sum(one.end - one.begin for one in packed) + run.end - run.begin > ROWS:
            yield tuple(packed)  # one more would be too many tokens
            packed = []
        packed.append(run)
    if packed:
        yield tuple(packed)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _nearest(cuts: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Choose for each of the cuts (n,) the closest place (m,), each place once, in ascending order;
    m >= n.
    """
    chosen, low = [], 0
    for index, cut in enumerate(cuts):
        high = len(places) - (len(cuts) - index - 1)  # leaves enough places for the other cuts
        low += int(np.abs(places[low:high] - cut).argmin())
        chosen.append(int(places[low]))
        low += 1
    return np.array(chosen, dtype=np.int64)
