"""Exact memory: everything is kept, everything is compared."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.memory.gather import checked, gather
from hebblm.memory.nearest import Ranked, nearest
from hebblm.memory.store import SPILL_BYTES, Entries, EntryStore
from hebblm.types import Neighbors


class FlatMemory:
    """All entries, searched exactly.

    Neighbours are the same bit for bit whether a query comes alone or in a batch; equal distances are ordered
    oldest first. Scratch memory is bounded whatever the number of entries.

    Args:
        dim: D, the width of a key.
        dtype: of the stored keys: float32, float16, bfloat16 or float64.
        device: where entries live and searches run; None takes the device of the first keys added.
        chunk_bytes: bound on the scratch memory of a search; None chooses by device.
        spill_bytes: keys on the CPU that outgrow this many bytes are memory-mapped from a temporary file.

    Raises:
        UserError: an unknown ``dtype``.
    """

    kind = "exact"

    def __init__(
        self,
        dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        chunk_bytes: int | None = None,
        spill_bytes: int = SPILL_BYTES,
    ) -> None:
        self._store = EntryStore(dim, dtype=dtype, device=device, spill_bytes=spill_bytes)
        self._chunk_bytes = chunk_bytes
        self._base = 0

    @classmethod
    def over(cls, store: EntryStore) -> FlatMemory:
        """Return a memory over the entries of ``store``, which become its base."""
        memory = cls(store.dim, dtype=store.dtype)
        memory._store = store
        memory.mark_base()
        return memory

    @property
    def dim(self) -> int:
        """The width of a key."""
        return self._store.dim

    @property
    def dtype(self) -> torch.dtype:
        """The type keys are stored in."""
        return self._store.dtype

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._store)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries: keys (M, D), values (M,) int64, log_normalizers (M,) in nats."""
        self._store.append(keys, values, log_normalizers)

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """Return the exact ``k`` nearest entries of each query (N, D); fewer are masked out.

        Raises:
            UserError: ``k`` below 1, or a query that is not finite.
        """
        return gather([self.entries()], self.nearest(queries, k), queries)

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        """Return distances and positions (N, K) only; see :meth:`search`."""
        entries = self.entries()
        return nearest(checked(queries, entries, k), entries, k, chunk_bytes=self._chunk_bytes)

    def entries(self) -> Entries:
        """Return a view of all entries, oldest first."""
        return self._store.entries()

    def mark_base(self) -> None:
        """Make the present entries the state that :meth:`reset` returns to."""
        self._base = len(self)

    def reset(self) -> None:
        """Drop every entry added since the last :meth:`mark_base`, or since construction."""
        self._store.truncate(self._base)

    def describe(self) -> dict[str, object]:
        """Return what a result records about this memory."""
        return {"kind": self.kind, "dtype": str(self.dtype).removeprefix("torch."), "entries": len(self)}
