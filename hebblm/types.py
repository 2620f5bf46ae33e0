"""The central types: tensors only, no model, no file, no command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True, slots=True)
class OutputHead:
    """The softmax layer: logits ``f = W h + b``, or ``c tanh(f / c)`` of them under a soft cap c.

    What adapts the layer under a cap adds to the capped logits: its weights stand beside the base's, behind the cap.

    Args:
        weight: (V, D) one row a class.
        bias: (V,) or None.
        cap: bound of the logits, None for none.
    """

    weight: Tensor
    bias: Tensor | None
    cap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits for hidden states (..., D) as (..., V)."""
        scores = hidden @ self.weight.t()
        return self.capped(scores if self.bias is None else scores + self.bias)

    def capped(self, scores: Tensor) -> Tensor:
        """What the cap leaves of ``W h + b`` of any shape; the same tensor without one."""
        return scores if self.cap is None else self.cap * (scores / self.cap).tanh()


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The K nearest memory entries of N queries.

    Args:
        keys: (N, K, D) stored hidden states; rows that the mask leaves out are zero.
        values: (N, K) int64 labels; 0 where the mask leaves out.
        distances: (N, K) squared L2 distances, ascending, never negative; +inf where the mask leaves out.
        mask: (N, K) bool, True for a real entry (there may be fewer than K).
        log_normalizers: (N, K) logsumexp of the base logits of each key, in nats, where they were stored.
    """

    keys: Tensor
    values: Tensor
    distances: Tensor
    mask: Tensor
    log_normalizers: Tensor | None = None

    def rows(self, index: slice | list[int]) -> Neighbors:
        """Those of some of the queries."""
        logs = self.log_normalizers
        known = None if logs is None else logs[index]
        return Neighbors(self.keys[index], self.values[index], self.distances[index], self.mask[index], known)


@runtime_checkable
class Memory(Protocol):
    """Pairs (hidden state, label) that can be searched by squared L2 distance."""

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries: keys (M, D), values (M,) int64, and, if they are kept, log_normalizers (M,) in nats."""

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """The ``k`` nearest entries of each query (N, D); fewer are masked out."""

    def reset(self) -> None:
        """Forget what was added since construction."""

    def __len__(self) -> int:
        """Number of entries."""


@runtime_checkable
class Adapter(Protocol):
    """A method that turns hidden states into next-token distributions and may learn from what was observed."""

    def predict(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (N, V) in nats for hidden states (N, D); changes nothing."""

    def score(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Loss (N,) in nats of ``targets`` (N,), equal to gathering from :meth:`predict`."""

    def update(self, hidden: Tensor, targets: Tensor) -> None:
        """Learn from observed pairs, after they were scored."""

    def reset(self) -> None:
        """To the state after construction."""
