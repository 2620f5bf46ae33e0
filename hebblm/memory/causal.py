"""Retrieval for a block of the stream at once, as if it had been written to the memory token by token.

The states of a block are known before its labels are scored, so that nothing has to be searched one by one: row i
finds the nearest of the stored entries and of those rows of the block that were written before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.memory.flat import FlatMemory
from hebblm.memory.gather import checked, gather
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.nearest import Ranked, block_rows, compute_dtype, merge, nearest, squared_differences
from hebblm.memory.pq import FaissMemory
from hebblm.memory.ring import RingMemory
from hebblm.memory.store import Entries, EntryStore
from hebblm.types import Memory, Neighbors


def causal_span(memory: Memory, every: int) -> int | None:
    """Return how many tokens from here on can be searched at once when every ``every`` tokens are written.

    A :class:`FaissMemory` of its own, and a memory of an unknown kind, may find other entries once something is
    written: they are searched interval by interval. A :class:`HybridMemory` may only be served up to the write that
    moves its recent entries to the bulk.

    Args:
        memory: as it is at the start of the block.
        every: tokens between two writes, at least 1.

    Returns:
        A multiple of ``every``; None for any number.
    """
    if isinstance(memory, (FlatMemory, RingMemory)):
        return None
    if isinstance(memory, HybridMemory):
        return ((memory.flush_at - len(memory.recent)) // every + 1) * every
    return every


def parts_of(memory: Memory) -> list[Entries]:
    """Return views of a memory's entries, oldest first: at least one, or none for a memory of an unknown kind."""
    if isinstance(memory, HybridMemory):
        return memory.parts()
    if isinstance(memory, (FlatMemory, RingMemory, FaissMemory)):
        return [memory.entries()]
    return []


class WrittenBlock:
    """A block of the stream beside the memory that it is being written to.

    Positions count through the memory's entries, then through the block's rows.

    Args:
        memory: one that :func:`causal_span` lets a block of this size be served from.
        keys: (N, D) hidden states of the block, in the order of the stream.
        values: (N,) int64 the labels that followed them.
        visible: (N,) int64, row i comes when the first ``visible[i]`` rows were written; at most i, ascending.
        log_normalizers: (N,) of the keys, nats, None if they are not kept.

    Raises:
        TypeError: a memory that has to be searched interval by interval.
    """

    def __init__(
        self,
        memory: Memory,
        keys: Tensor,
        values: Tensor,
        visible: Tensor,
        log_normalizers: Tensor | None = None,
    ) -> None:
        if not isinstance(memory, (FlatMemory, RingMemory, HybridMemory)):
            raise TypeError(f"a {type(memory).__name__} is searched interval by interval")
        self.memory = memory
        self.queries = keys
        self._stored = parts_of(memory)
        like = self._stored[0].keys
        store = EntryStore(like.shape[1], dtype=like.dtype, device=like.device)
        store.append(keys, values, log_normalizers)
        self._rows = store.entries()
        self._visible = visible.to(like.device)

    def search(self, k: int) -> Neighbors:
        """Return the ``k`` nearest entries of each row that were written before it; fewer are masked out.

        Raises:
            UserError: ``k`` below 1, or a row that is not finite.
        """
        return self.gather(self.nearest(k))

    def gather(self, ranked: Ranked) -> Neighbors:
        """Collect the entries at ``ranked`` positions (N, K)."""
        return gather([*self._stored, self._rows], ranked, self.queries)

    def nearest(self, k: int) -> Ranked:
        """Return distances and positions (N, K) only; equal distances: older first."""
        queries = checked(self.queries, self._rows, k)
        first, last = _bounds(self.memory, self._visible)
        stored = sum(len(part) for part in self._stored)
        if isinstance(self.memory, RingMemory):
            older = _ring_nearest(queries, self._stored[0], first, k)
        else:
            older = self.memory.nearest(queries, k)
        rows = _nearest_between(queries, self._rows, (first - stored).clamp_min(0), last - stored)
        return merge(older, _shifted(rows, stored), k)


def _bounds(memory: Memory, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first position that each row sees, and the one behind its last, each (N,)."""
    last = visible + len(memory)
    if isinstance(memory, RingMemory):
        return (last - memory.capacity).clamp_min(0), last
    return torch.zeros_like(last), last


def _ring_nearest(queries: Tensor, entries: Entries, first: Tensor, k: int) -> Ranked:
    """Return the nearest of a ring's entries that are not dropped yet when each row comes."""
    going = min(len(entries), int(first.max()))  # entries that some row finds and another does not
    leaving = _nearest_between(queries, _slice(entries, 0, going), first, torch.full_like(first, going))
    staying = nearest(queries, _slice(entries, going, len(entries)), k)
    return merge(leaving, _shifted(staying, going), k)


def _nearest_between(queries: Tensor, entries: Entries, first: Tensor, last: Tensor) -> Ranked:
    """Rank by direct difference, for each query, the few entries at positions ``first`` to ``last`` (N,)."""
    dtype = compute_dtype(queries, entries.keys)
    queries, keys = queries.to(dtype), entries.keys.to(dtype)
    distances = torch.full((len(queries), len(entries)), torch.inf, dtype=dtype, device=keys.device)
    step = block_rows(keys.numel() * dtype.itemsize, keys.device)
    for begin in range(0, len(queries), step):
        some = slice(begin, begin + step)
        stop = int(last[some].max())
        distances[some, :stop] = squared_differences(queries[some, None], keys[:stop])
    positions = torch.arange(len(entries), device=keys.device)
    outside = (positions < first[:, None]) | (positions >= last[:, None])  # (N, n)
    ordered, ids = distances.masked_fill_(outside, torch.inf).sort(dim=1, stable=True)
    return Ranked(ordered, ids.masked_fill(outside.gather(1, ids), -1))


def _slice(entries: Entries, begin: int, end: int) -> Entries:
    """Return a run of entries."""
    logs = entries.log_normalizers
    return Entries(
        entries.keys[begin:end],
        entries.values[begin:end],
        entries.norms[begin:end],
        None if logs is None else logs[begin:end],
    )


def _shifted(ranked: Ranked, by: int) -> Ranked:
    """Return the same ranking with positions that count from ``by`` on."""
    return Ranked(ranked.distances, torch.where(ranked.ids < 0, ranked.ids, ranked.ids + by))
