"""Memory of fixed capacity: the newest entries only (Hebb-250, Hebb-500)."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.gather import checked, gather
from hebblm.memory.nearest import Ranked, nearest
from hebblm.memory.store import Entries, EntryStore
from hebblm.types import Neighbors


class RingMemory:
    """The latest ``capacity`` entries, searched exactly as :class:`~hebblm.memory.flat.FlatMemory` searches.

    Args:
        dim: D, the width of a key.
        capacity: the most entries that are kept, at least 1.
        dtype: of the stored keys: float32, float16, bfloat16 or float64.
        device: where entries live and searches run; None takes the device of the first keys added.

    Raises:
        UserError: ``capacity`` below 1, or an unknown ``dtype``.
    """

    kind = "ring"

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
                f"memory.capacity={capacity} keeps nothing; use at least 1, or unset it for no limit"
            )
        self.capacity = capacity
        self._store = EntryStore(dim, dtype=dtype, device=device)
        self._base: EntryStore | None = None

    @classmethod
    def over(cls, store: EntryStore, capacity: int) -> RingMemory:
        """Return a memory over the latest entries of ``store``, which become its base."""
        memory = cls(store.dim, capacity, dtype=store.dtype)
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
        """Return the number of entries kept."""
        return min(len(self._store), self.capacity)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append keys (M, D), values (M,), log_normalizers (M,); forget the oldest beyond capacity."""
        self._store.append(keys, values, log_normalizers)
        if len(self._store) >= 2 * self.capacity:
            # Compacting at twice the capacity keeps entries contiguous and costs O(1) an entry.
            self._store = self._store.copy(self.capacity)

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """Return the exact ``k`` nearest of the entries kept; fewer are masked out.

        Raises:
            UserError: ``k`` below 1, or a query that is not finite.
        """
        return gather([self.entries()], self.nearest(queries, k), queries)

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        """Return distances and positions (N, K) only; see :meth:`search`."""
        entries = self.entries()
        return nearest(checked(queries, entries, k), entries, k)

    def entries(self) -> Entries:
        """Return a view of the entries kept, oldest first."""
        return self._store.entries(latest=self.capacity)

    def mark_base(self) -> None:
        """Make the present entries the state that :meth:`reset` returns to."""
        self._base = self._store.copy(self.capacity)

    def reset(self) -> None:
        """Return to the entries of the last :meth:`mark_base`, also those forgotten since, or to none."""
        if self._base is None:
            self._store.truncate(0)
        else:
            self._store = self._base.copy(self.capacity)

    def describe(self) -> dict[str, object]:
        """Return what a result records about this memory."""
        dtype = str(self.dtype).removeprefix("torch.")
        return {"kind": self.kind, "dtype": dtype, "entries": len(self), "capacity": self.capacity}
