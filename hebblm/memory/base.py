"""The base class of all memories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.nearest import Ranked, gather
from hebblm.memory.store import Entries
from hebblm.types import Neighbors


def rooted(states: Tensor) -> Tensor:
    """``sign(h) sqrt(|h|)`` of every number of states: the signed square root (Perronnin, Sanchez and Mensink 2010).

    In the states of a pretrained transformer a few dimensions are many times as large as the others, and decide
    distances and products alone. Their roots are not, whatever the model, and nothing has to be known of it.
    """
    return states.abs().sqrt_().copysign_(states)


def squared(keys: Tensor) -> Tensor:
    """``sign(k) k^2``: the states of which keys are the signed square roots."""
    return keys * keys.abs()


class AnyMemory(ABC):
    """Entries that are searched by squared L2 distance; they stand, and are counted, in the order of writing."""

    kind: ClassVar[str]
    """Name in results and manifests."""

    in_blocks: ClassVar[bool] = False
    """Whether a block of the stream can be searched beside it (:mod:`hebblm.memory.causal`): its neighbours must not
    depend on what is written later. A memory that may find others is searched interval by interval."""

    forgets: ClassVar[bool] = False
    """Whether entries make room for new ones; such a memory is neither kept in pieces nor shared below others."""

    rooted: bool = False
    """Whether keys are square roots of states, see :func:`rooted`."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """D, the width of a key."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The type keys are stored in."""

    @abstractmethod
    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries: keys (M, D), values (M,) int64, log_normalizers (M,) in nats."""

    def fill(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries of which many more follow before any is searched; see :meth:`add`."""
        self.add(keys, values, log_normalizers)

    def release(self) -> None:
        """Let go of memory that can be had again: pages of keys that were read from disk."""
        return

    def note(self, labels: Sequence[Tensor]) -> None:
        """Take account of the labels (M,) that each of several processes has written, where these share the memory."""
        return

    @abstractmethod
    def nearest(self, queries: Tensor, k: int) -> Ranked:
        """Distances and positions (N, K) only; see :meth:`search`."""

    def nearest_within(self, queries: Tensor, k: int, limits: Tensor) -> Ranked:
        """What :meth:`nearest` does; entries farther than ``limits`` (N,) may be missing."""
        return self.nearest(queries, k)

    @abstractmethod
    def segments(self) -> list[Entries]:
        """Views of the entries, oldest first: at least one."""

    @abstractmethod
    def mark_base(self) -> None:
        """Make the present entries the state that :meth:`reset` returns to."""

    @abstractmethod
    def reset(self) -> None:
        """Drop every entry added since the last :meth:`mark_base`, or since construction."""

    def __len__(self) -> int:
        return sum(map(len, self.segments()))

    def __repr__(self) -> str:
        """Say how much it holds."""
        return f"{type(self).__name__}({len(self):,} entries of width {self.dim})"

    def keys_of(self, states: Tensor) -> Tensor:
        """What is stored of states (..., D), and searched for."""
        return rooted(states) if self.rooted else states

    def states_of(self, keys: Tensor) -> Tensor:
        """States of stored keys (..., D)."""
        return squared(keys) if self.rooted else keys

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """The ``k`` nearest entries of each query (N, D); fewer are masked out.

        Raises:
            UserError: ``k`` below 1, or a query that is not finite.
        """
        return gather(self.segments(), self.nearest(queries, k), queries)

    def span(self, every: int) -> int | None:
        """How many tokens from here on can be searched at once when every ``every`` tokens are written.

        Returns:
            A multiple of ``every``; None for any number.
        """
        return None if self.in_blocks else every

    def dropped(self, written: Tensor) -> Tensor:
        """How many of the oldest entries and rows (N,) are forgotten once so many more (N,) are written."""
        return torch.zeros_like(written)

    def counts(self, classes: int) -> Tensor:
        """Number of present entries of each of ``classes`` labels, (V,) int64."""
        return torch.stack([torch.bincount(part.values, minlength=classes) for part in self.segments()]).sum(0)

    def refresh(self) -> TrainedIndex | None:
        """Bring the trained index up to date, as a search would; None where all entries are compared."""
        return None

    def write_index(self, folder: Path) -> TrainedIndex | None:
        """Write the trained index of the entries whose arrays stand in ``folder`` beside them; None without any."""
        return None

    def describe(self) -> dict[str, object]:
        """What a result records about this memory."""
        dtype = str(self.dtype).removeprefix("torch.")
        return {
            "kind": self.kind,
            "dtype": dtype,
            "keys": "root" if self.rooted else "state",
            "entries": len(self),
            **self.settings(),
        }

    def settings(self) -> dict[str, Any]:
        """How entries are kept and searched, beside what every memory has, for results and manifests."""
        return {}
