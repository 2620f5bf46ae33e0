"""Exact search among a few entries beside a memory that has found K neighbours already."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.memory.nearest import Ranked, approximate_distances, error_bound, nearest, pad, rank
from hebblm.memory.store import Entries

MOST = 1 << 25  # pairs of a query and an entry that are compared at once


def nearest_within(queries: Tensor, entries: Entries, k: int, limits: Tensor) -> Ranked:
    """Return those of the exact ``k`` nearest entries that may be no farther than ``limits``.

    Where other entries fill the K places up to a distance, only nearer ones count, and they are few: no K of them
    have to be ranked. As in :func:`~hebblm.memory.nearest.nearest`, matrix products choose and direct differences
    decide.

    Args:
        queries: (N, D), finite, on the entries' device.
        entries: n entries.
        k: K, at least 1.
        limits: (N,) squared distances; inf where every entry may count.

    Returns:
        (N, K) distances and positions: every one of the K nearest within its limit is there, others may be missing.
    """
    if not len(entries) or len(queries) * len(entries) > MOST or not bool(limits.isfinite().all()):
        return nearest(queries, entries, k)
    rough = approximate_distances(queries, entries, 0, len(entries))  # (N, n)
    reach = limits.to(rough.dtype) + 2 * error_bound(queries, entries)  # (N,)
    near = rough <= reach[:, None]
    counts = near.sum(1)  # (N,)
    widest = int(counts.max()) if len(queries) else 0
    if widest > k:
        return nearest(queries, entries, k)
    row, column = near.nonzero().unbind(1)  # (m,)
    ids = torch.full((len(queries), widest), -1, dtype=torch.int64, device=rough.device)
    place = torch.arange(len(row), device=rough.device) - (counts.cumsum(0) - counts)[row]
    ids[row, place] = column
    return pad(rank(queries, entries.keys, ids), k)
