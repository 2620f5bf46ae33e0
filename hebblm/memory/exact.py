"""Exact memories: a search compares all entries."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.base import AnyMemory
from hebblm.memory.nearest import Ranked, checked, nearest, nearest_within
from hebblm.memory.store import SPILL_BYTES, Entries, EntryStore


class StoredMemory(AnyMemory):
    """A memory whose entries are in one store; the initial entries are not a base, see
    :meth:`mark_base`.
    """

    chunk_bytes: int | None = None

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._base = 0

    def over(self, store: EntryStore) -> Self:
        """Return this memory with the entries of ``store`` instead, which become its base."""
        self._store = store
        self.mark_base()
        return self

    @property
    def dim(self) -> int:
        return self._store.dim

    @property
    def dtype(self) -> torch.dtype:
        return self._store.dtype

    def __len__(self) -> int:
        return len(self._store)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        self._store.append(keys, values, log_normalizers)

    def release(self) -> None:
        self._store.release()

    def entries(self) -> Entries:
        """View of all entries, oldest first."""
        return self._store.entries()

    def segments(self) -> list[Entries]:
        return [self.entries()]

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        entries = self.entries()
        return nearest(checked(queries, entries, k), entries, k, chunk_bytes=self.chunk_bytes)

    def mark_base(self) -> None:
        self._base = len(self)

    def reset(self) -> None:
        self._store.truncate(self._base)


class FlatMemory(StoredMemory):
    """All entries, searched exactly.

    Neighbours are the same bit for bit whether a query comes alone or in a batch; equal distances
    are ordered oldest first. Scratch memory is bounded whatever the number of entries.

    Args:
        dim: D, the width of a key.
        dtype: of the stored keys: float32, float16, bfloat16 or float64.
        device: where entries live and searches run; None takes the device of the first keys added.
        chunk_bytes: bound on the scratch memory of a search; None chooses by device.
        spill_bytes: keys on the CPU that outgrow this many bytes are memory-mapped from a temporary
            file.

    Raises:
        UserError: an unknown ``dtype``.
    """

    kind = "exact"
    in_blocks = True

    def __init__(
        self,
        dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        chunk_bytes: int | None = None,
        spill_bytes: int = SPILL_BYTES,
    ) -> None:
        super().__init__(EntryStore(dim, dtype=dtype, device=device, spill_bytes=spill_bytes))
        self.chunk_bytes = chunk_bytes

    def nearest_within(self, queries: Tensor, k: int, limits: Tensor) -> Ranked:
        entries = self.entries()
        return nearest_within(checked(queries, entries, k), entries, k, limits)


class RingMemory(StoredMemory):
    """The latest ``capacity`` entries (Hebb-250, Hebb-500), searched exactly as :class:`FlatMemory`
    searches.

    Args:
        dim: D, the width of a key.
        capacity: the most entries that are kept, at least 1.
        dtype: of the stored keys: float32, float16, bfloat16 or float64.
        device: where entries live and searches run; None takes the device of the first keys added.

    Raises:
        UserError: ``capacity`` below 1, or an unknown ``dtype``.
    """

    kind = "ring"
    in_blocks = forgets = True

    def __init__(
        self,
        dim: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if capacity < 1:
            raise UserError(
                f"memory.capacity={capacity} keeps nothing; use at least 1, or unset it for no "
                "limit"
            )
        super().__init__(EntryStore(dim, dtype=dtype, device=device))
        self.capacity = capacity
        self._base_store: EntryStore | None = None

    def __len__(self) -> int:
        return min(len(self._store), self.capacity)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        super().add(keys, values, log_normalizers)
        if len(self._store) >= 2 * self.capacity:
            # Compacting at twice the capacity keeps entries contiguous and costs O(1) an entry.
            self._store = self._store.copy(self.capacity)

    def entries(self) -> Entries:
        return self._store.entries(latest=self.capacity)

    def dropped(self, written: Tensor) -> Tensor:
        return (written + len(self) - self.capacity).clamp_min(0)

    def mark_base(self) -> None:
        self._base_store = self._store.copy(self.capacity)

    def reset(self) -> None:
        """Return to the entries of the last :meth:`mark_base`, even those forgotten since, or to an
        empty memory.
        """
        if self._base_store is None:
            self._store.truncate(0)
        else:
            self._store = self._base_store.copy(self.capacity)

    def settings(self) -> dict[str, Any]:
        return {"capacity": self.capacity}
