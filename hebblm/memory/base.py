"""The base class of all memories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.found import Found
from hebblm.memory.nearest import Ranked
from hebblm.memory.store import Entries
from hebblm.types import Neighbors


def signed_sqrt(states: Tensor) -> Tensor:
    """``sign(h) sqrt(|h|)`` of every number of states: the signed square root (Perronnin, Sanchez
    and Mensink 2010).

    In the states of a pretrained transformer a few dimensions are many times as large as the others
    and dominate distances and products. Their roots do not, whatever the model, and the rule needs
    no statistics of the model.
    """
    return states.abs().sqrt_().copysign_(states)


def squared(keys: Tensor) -> Tensor:
    """``sign(k) k^2``: the states whose signed square roots are the keys."""
    return keys * keys.abs()


class AnyMemory(ABC):
    """Entries that are searched by squared L2 distance, numbered in the order of writing."""

    kind: ClassVar[str]
    """Name in results and manifests."""

    in_blocks: ClassVar[bool] = False
    """Whether a block of the stream can be searched together with it (:mod:`hebblm.memory.causal`):
    later entries must not change its neighbours. A memory without this property is searched
    interval by interval.
    """

    forgets: ClassVar[bool] = False
    """Whether old entries make room for new ones; such a memory can be neither split over processes
    nor shared.
    """

    signed_sqrt: bool = False
    """Whether keys are square roots of states, see :func:`signed_sqrt`."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """D, the width of a key."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The type of stored keys."""

    @abstractmethod
    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries: keys (M, D), values (M,) int64, log_normalizers (M,) in nats."""

    def fill(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries, with many more to follow before the next search; see :meth:`add`."""
        self.add(keys, values, log_normalizers)

    def release(self) -> None:
        """Free memory that can be filled again: pages of keys that were read from disk."""
        return

    def observe_ranks(self, labels: Sequence[Tensor]) -> None:
        """Record the labels (M,) that each process has written, if several processes share the
        memory.
        """
        return

    @abstractmethod
    def nearest(self, queries: Tensor, k: int) -> Ranked:
        """Return distances and positions (N, K) only; see :meth:`search`."""

    def nearest_within(self, queries: Tensor, k: int, limits: Tensor) -> Ranked:
        """Search as :meth:`nearest` does; entries farther than ``limits`` (N,) may be missing."""
        return self.nearest(queries, k)

    @abstractmethod
    def segments(self) -> list[Entries]:
        """Return views of the entries, oldest first: at least one view."""

    @abstractmethod
    def mark_base(self) -> None:
        """Make the present entries the state that :meth:`reset` returns to."""

    @abstractmethod
    def reset(self) -> None:
        """Drop every entry added since the last :meth:`mark_base`, or since construction."""

    def __len__(self) -> int:
        return sum(map(len, self.segments()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} entries of width {self.dim})"

    def keys_of(self, states: Tensor) -> Tensor:
        """Return the keys (..., D) to store and search for states (..., D)."""
        return signed_sqrt(states) if self.signed_sqrt else states

    def states_of(self, keys: Tensor) -> Tensor:
        """Return the states (..., D) of stored keys (..., D)."""
        return squared(keys) if self.signed_sqrt else keys

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """Return the ``k`` nearest entries of each query (N, D); the mask leaves out missing ones.

        Raises:
            UserError: ``k`` below 1, or a query that is not finite.
        """
        return self.find(queries, k).neighbors(queries.dtype)

    def find(self, queries: Tensor, k: int) -> Found:
        """Search as :meth:`search` does, and leave the keys where they are."""
        return Found.at(self.segments(), self.nearest(queries, k), queries.device)

    def span(self, every: int) -> int | None:
        """Return how many tokens from here on can be searched at once, if ``every`` tokens are
        written at a time.

        Returns:
            A multiple of ``every``; None for any number.
        """
        if self.in_blocks:
            return None
        return every

    def dropped(self, written: Tensor) -> Tensor:
        """Return how many of the oldest entries and rows (N,) are forgotten once so many more (N,)
        are written.
        """
        return torch.zeros_like(written)

    def counts(self, classes: int) -> Tensor:
        """Return the number of present entries of each of ``classes`` labels, (V,) int64."""
        return torch.stack(
            [torch.bincount(part.values, minlength=classes) for part in self.segments()]
        ).sum(0)

    def refresh(self) -> TrainedIndex | None:
        """Bring the trained index up to date, as a search would; None if all entries are
        compared.
        """
        return None

    def write_index(self, folder: Path) -> TrainedIndex | None:
        """Write the trained index of the entries in ``folder`` next to their arrays; None without
        an index.
        """
        return None

    def describe(self) -> dict[str, object]:
        """Describe this memory for a result."""
        dtype = str(self.dtype).removeprefix("torch.")
        return {
            "kind": self.kind,
            "dtype": dtype,
            "keys": "root" if self.signed_sqrt else "state",
            "entries": len(self),
            **self.settings(),
        }

    def settings(self) -> dict[str, Any]:
        """Return this kind's own settings, for results and manifests."""
        return {}
