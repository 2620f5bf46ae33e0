"""Entries that a search found, without their keys: most rules need labels and distances alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hebblm.memory.nearest import Ranked, gather_keys
from hebblm.memory.store import Entries
from hebblm.types import Neighbors


@dataclass(frozen=True, slots=True)
class Found:
    """The K nearest entries of N queries. Their keys stay in the memory until somebody asks.

    Args:
        ranked: distances and positions (N, K), which count through all segments.
        segments: views of the entries, oldest first.
        values: (N, K) int64 labels; 0 where there is no entry.
        mask: (N, K) bool, True for a real entry.
        log_normalizers: (N, K) as :class:`~hebblm.types.Neighbors` has them, or None.
        device: that of the queries.
    """

    ranked: Ranked
    segments: Sequence[Entries]
    values: Tensor
    mask: Tensor
    log_normalizers: Tensor | None
    device: torch.device

    @classmethod
    def at(cls, segments: Sequence[Entries], ranked: Ranked, device: torch.device) -> Found:
        """Return the entries at ``ranked`` positions (N, K), for queries on a device."""
        mask = ranked.ids >= 0
        values = _column(segments, "values", ranked.ids)
        assert values is not None, "every entry has a label"
        logs = _column(segments, "log_normalizers", ranked.ids)
        return cls(
            Ranked(ranked.distances.to(device), ranked.ids),
            segments,
            values.masked_fill_(~mask, 0).to(device),
            mask.to(device),
            None if logs is None else logs.masked_fill_(~mask, 0).to(device),
            device,
        )

    @property
    def distances(self) -> Tensor:
        """(N, K) squared L2 distances, ascending; +inf without an entry."""
        return self.ranked.distances

    def without_normalizers(self) -> Found:
        """Return the same entries, whose log-normalisers belong to another head."""
        return replace(self, log_normalizers=None)

    def products(self, queries: Tensor) -> Tensor:
        """Return ``k_k . k`` (N, K) of queries (N, D), 0 without an entry.

        They follow from ``|k_k - k|^2 = |k_k|^2 + |k|^2 - 2 k_k . k``.
        """
        norms = _column(self.segments, "norms", self.ranked.ids)
        assert norms is not None, "every entry has a norm"
        lengths = queries.square().sum(1, keepdim=True) + norms.to(self.device)
        return ((lengths - self.distances) / 2).masked_fill_(~self.mask, 0).to(queries.dtype)

    def rows(self, index: slice | list[int]) -> Found:
        """Return the entries of some of the queries."""
        logs = self.log_normalizers
        return replace(
            self,
            ranked=Ranked(self.ranked.distances[index], self.ranked.ids[index]),
            values=self.values[index],
            mask=self.mask[index],
            log_normalizers=None if logs is None else logs[index],
        )

    def keys(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the keys (m, K, D) of some queries (m,) int64, zero without an entry."""
        ids = self.ranked.ids[rows.to(self.ranked.ids.device)]  # (m, K)
        return gather_keys(self.segments, ids, dtype).to(self.device)

    def neighbors(self, dtype: torch.dtype) -> Neighbors:
        """Return the entries with their keys (N, K, D), which take this dtype."""
        keys = gather_keys(self.segments, self.ranked.ids, dtype).to(self.device)
        return Neighbors(keys, self.values, self.distances, self.mask, self.log_normalizers)


def _column(
    segments: Sequence[Entries], name: Literal["values", "norms", "log_normalizers"], ids: Tensor
) -> Tensor | None:
    """Return one number (N, K) of each entry at positions (N, K), unspecified at -1; None if a
    segment has none.
    """
    taken: Tensor | None = None
    start = 0
    for segment in segments:
        column: Tensor | None = getattr(segment, name)
        if column is None:
            return None
        if len(segment):
            places = (ids - start).clamp_(0, len(segment) - 1).flatten()
            part = column.index_select(0, places).view(ids.shape)
            taken = part if taken is None else torch.where(ids >= start, part, taken)
        start += len(segment)
    if taken is None:  # nothing is written yet
        column = getattr(segments[0], name)
        assert column is not None, "the loop has seen it"
        return column.new_zeros(ids.shape)
    return taken
