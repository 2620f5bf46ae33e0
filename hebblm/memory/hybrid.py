"""Memory for streams: it searches the newest entries exactly, and the bulk by a trained index."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.base import AnyMemory
from hebblm.memory.exact import FlatMemory
from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.nearest import Ranked, merge, shifted
from hebblm.memory.pq import FaissMemory
from hebblm.memory.store import Entries


class HybridMemory(AnyMemory):
    """A recent-exact buffer merged with a bulk memory.

    New entries go to ``recent`` and are found exactly from the next search on. As soon as
    ``recent`` holds more than ``flush_at`` entries, all of them move to ``bulk``; the moment
    depends on counts alone.

    Args:
        bulk: memory of the older entries; it may be empty, and None starts an empty
            :class:`FaissMemory`.
        recent: empty memory of the same width on the CPU: an exact one, or again one of two parts.
        flush_at: the most entries that stay in ``recent`` after an :meth:`add`, at least 1.

    Raises:
        UserError: ``flush_at`` below 1.
        ValueError: memories of different widths, or a ``recent`` that is not empty.
    """

    kind = "hybrid"
    in_blocks = True

    def __init__(
        self, bulk: AnyMemory | None, recent: FlatMemory | HybridMemory, *, flush_at: int = 4096
    ) -> None:
        if flush_at < 1:
            raise UserError(f"memory.flush_at={flush_at} is out of range; use at least 1")
        self.bulk = FaissMemory(recent.dim, dtype=recent.dtype) if bulk is None else bulk
        if self.bulk.dim != recent.dim or len(recent):
            raise ValueError("recent must be empty and of the width of bulk")
        self.recent = recent
        self.flush_at = flush_at

    @property
    def dim(self) -> int:
        return self.recent.dim

    @property
    def dtype(self) -> torch.dtype:
        return self.recent.dtype

    def __len__(self) -> int:
        return len(self.bulk) + len(self.recent)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        self.recent.add(keys, values, log_normalizers)
        if len(self.recent) > self.flush_at:
            self._flush()

    def fill(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries to the bulk directly, with many more to follow before the next search."""
        if len(self.recent):
            self._flush()
        self.bulk.fill(keys, values, log_normalizers)

    def release(self) -> None:
        self.bulk.release()
        self.recent.release()

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        older = self.bulk.nearest(queries, k)
        newer = self.recent.nearest_within(queries, k, older.distances[:, -1])
        return merge(older, shifted(newer, len(self.bulk)), k)

    def span(self, every: int) -> int:
        """Return how many tokens can be searched at once: up to the write that moves recent entries
        to the bulk.
        """
        before = ((self.flush_at - len(self.recent)) // every + 1) * every
        inner = self.recent.span(every)
        return before if inner is None else min(before, inner)

    def segments(self) -> list[Entries]:
        parts = [*self.bulk.segments(), *self.recent.segments()]
        return [part for part in parts if len(part)] or parts[-1:]

    def mark_base(self) -> None:
        """Make the present entries the state that :meth:`reset` returns to; they all move to the
        bulk.
        """
        if len(self.recent):
            self._flush()
        self.bulk.mark_base()

    def reset(self) -> None:
        self.bulk.reset()
        self.recent.reset()

    def refresh(self) -> TrainedIndex | None:
        self.recent.refresh()
        return self.bulk.refresh()

    def write_index(self, folder: Path) -> TrainedIndex | None:
        return self.bulk.write_index(folder)

    def settings(self) -> dict[str, Any]:
        return {**self.bulk.settings(), "flush_at": self.flush_at}

    @classmethod
    def over(cls, shared: AnyMemory) -> HybridMemory:
        """Return a memory of own entries, found exactly, over the entries of another that is only
        read.
        """
        if shared.forgets:
            raise UserError(
                f"a memory of kind {shared.kind} cannot be shared by streams; leave "
                "memory.capacity unset"
            )
        bulk = shared.bulk if isinstance(shared, HybridMemory) else shared
        recent = FlatMemory(bulk.dim, dtype=bulk.dtype, device=bulk.segments()[0].keys.device)
        memory = cls(bulk, recent, flush_at=sys.maxsize)
        memory.signed_sqrt = shared.signed_sqrt
        return memory

    def _flush(self) -> None:
        for part in self.recent.segments():
            self.bulk.add(part.keys, part.values, part.log_normalizers)
        self.recent.reset()
