"""Retrieval for a block of the stream at once, as if it had been written to the memory token by
token.

The states of a block are known before its labels are scored, so all its rows can be searched
together: row i finds the nearest of the stored entries and of the rows of the block that were
written before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.memory.base import AnyMemory
from hebblm.memory.found import Found
from hebblm.memory.nearest import Ranked, checked, listed_distances, merge, nearest, shifted
from hebblm.memory.store import Entries, EntryStore
from hebblm.types import Neighbors


class WrittenBlock:
    """A block of the stream, keys (N, D) and labels (N,), with the memory that it is being written
    to.

    Row i is searched after the first ``visible[i]`` rows were written; ``visible`` is ascending,
    and at most i. The memory's span allows a block of this size. Positions count the memory's
    entries first, then the block's rows.
    """

    def __init__(
        self,
        memory: AnyMemory,
        keys: Tensor,
        values: Tensor,
        visible: Tensor,
        log_normalizers: Tensor | None = None,
    ) -> None:
        if not memory.in_blocks:
            raise TypeError(f"a {type(memory).__name__} is searched interval by interval")
        self.memory = memory
        self.queries = keys
        self._stored = memory.segments()
        like = self._stored[0].keys
        store = EntryStore(like.shape[1], dtype=like.dtype, device=like.device)
        store.append(keys, values, log_normalizers)
        self._rows = store.entries()
        self._visible = visible.to(like.device)

    def search(self, k: int) -> Neighbors:
        return self.find(k).neighbors(self.queries.dtype)

    def find(self, k: int) -> Found:
        """Search, and leave the keys where they are."""
        return self.entries_at(self.nearest(k))

    def entries_at(self, ranked: Ranked) -> Found:
        """Return the entries at ``ranked`` positions (N, K)."""
        return Found.at([*self._stored, self._rows], ranked, self.queries.device)

    def nearest(self, k: int) -> Ranked:
        """Return distances and positions (N, K) only; on equal distances the older entry comes
        first.
        """
        queries = checked(self.queries, self._rows, k)
        stored = len(self.memory)
        first = self.memory.dropped(self._visible)
        if bool(first.any()):
            older = _left_nearest(queries, self._stored[0], first, k)
        else:
            older = self.memory.nearest(queries, k)
        rows = _nearest_between(queries, self._rows, (first - stored).clamp_min(0), self._visible)
        return merge(older, shifted(rows, stored), k)


def _left_nearest(queries: Tensor, entries: Entries, first: Tensor, k: int) -> Ranked:
    """Return the nearest entries from position ``first`` (N,) on, which are those that each row
    still finds.
    """
    going = min(len(entries), int(first.max()))  # entries that some rows find and others do not
    leaving = _nearest_between(queries, entries.run(0, going), first, torch.full_like(first, going))
    staying = nearest(queries, entries.run(going), k)
    return merge(leaving, shifted(staying, going), k)


def _nearest_between(queries: Tensor, entries: Entries, first: Tensor, last: Tensor) -> Ranked:
    """Rank by direct difference, for each query, the few entries at positions ``first`` to ``last``
    (N,).
    """
    positions = torch.arange(len(entries), device=entries.keys.device)
    distances = listed_distances(queries, entries.keys, positions.expand(len(queries), -1))
    outside = (positions < first[:, None]) | (positions >= last[:, None])  # (N, n)
    ordered, ids = distances.masked_fill_(outside, torch.inf).sort(dim=1, stable=True)
    return Ranked(ordered, ids.masked_fill(outside.gather(1, ids), -1))


def dropped_counts(memory: AnyMemory, wanted: Tensor, labels: Tensor, visible: Tensor) -> Tensor:
    """Return how many entries (N, K) of each wanted label (N, K) a memory drops while a block is
    written to it.

    It may drop the block's own ``labels`` (N,) too; each row comes after ``visible`` (N,) rows were
    written.
    """
    dropped = memory.dropped(visible)  # (N,)
    if not bool(dropped.any()):
        return torch.zeros_like(wanted)
    stored = memory.segments()[0].values[: int(dropped.max())].to(labels.device)
    return occurrences(wanted, torch.cat([stored, labels])[: int(dropped.max())], dropped)


def occurrences(wanted: Tensor, values: Tensor, last: Tensor) -> Tensor:
    """Return how often (N, K) each wanted label (N, K) occurs in the first ``last`` (N,) labels of
    ``values`` (B,).
    """
    if not len(values) or not wanted.numel():
        return torch.zeros_like(wanted)
    # Each label is represented by the position of one of its places, and a missing label by the
    # last position.
    places = values.new_full((int(torch.maximum(wanted.max(), values.max())) + 1,), len(values))
    places[values] = torch.arange(len(values), device=values.device)
    running = values.new_zeros(len(values) + 1, len(values) + 1)
    running[1:].scatter_(1, places.index_select(0, values)[:, None], 1)
    before = places.index_select(0, wanted.flatten()).view(wanted.shape)  # (N, K)
    return running.cumsum(0).index_select(0, last).gather(1, before)
