"""The central types: tensors only, no model, no file, no command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True, slots=True)
class OutputHead:
    """The softmax layer: logits ``f = W h + b``, or ``c tanh(f / c)`` of them under a soft cap c.

    A method that adapts a capped layer adds to the capped logits: its weights act after the cap,
    not within it.

    Args:
        weight: (V, D) one row per class.
        bias: (V,) or None.
        cap: bound of the logits, or None.
    """

    weight: Tensor
    bias: Tensor | None
    cap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) for hidden states (..., D)."""
        scores = hidden @ self.weight.t()
        return self.capped(scores if self.bias is None else scores + self.bias)

    def capped(self, scores: Tensor) -> Tensor:
        """Apply the cap to ``W h + b`` of any shape; without a cap, return the same tensor."""
        return scores if self.cap is None else self.cap * (scores / self.cap).tanh()


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The K nearest memory entries of N queries.

    Args:
        keys: (N, K, D) stored hidden states; rows that the mask leaves out are zero.
        values: (N, K) int64 labels; 0 where the mask leaves out.
        distances: (N, K) squared L2 distances, ascending, never negative; +inf where the mask
            leaves out.
        mask: (N, K) bool, True for a real entry (there may be fewer than K).
        log_normalizers: (N, K) logsumexp of the base logits of each key, in nats, or None if they
            were not stored.
    """

    keys: Tensor
    values: Tensor
    distances: Tensor
    mask: Tensor
    log_normalizers: Tensor | None = None

    def rows(self, index: slice | list[int]) -> Neighbors:
        """Return the neighbours of some of the queries."""
        logs = self.log_normalizers
        known = None if logs is None else logs[index]
        return Neighbors(
            self.keys[index], self.values[index], self.distances[index], self.mask[index], known
        )


@runtime_checkable
class Memory(Protocol):
    """Pairs (hidden state, label) that can be searched by squared L2 distance."""

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        """Append entries: keys (M, D), values (M,) int64 and, if they are kept, log_normalizers
        (M,) in nats.
        """

    def search(self, queries: Tensor, k: int) -> Neighbors:
        """Return the ``k`` nearest entries of each query (N, D); the mask leaves out missing
        ones.
        """

    def reset(self) -> None:
        """Forget the entries added since construction."""

    def __len__(self) -> int:
        """Return the number of entries."""


@runtime_checkable
class Adapter(Protocol):
    """A method that turns hidden states into next-token distributions and may learn from observed
    labels.
    """

    def predict(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities (N, V) in nats for hidden states (N, D); changes nothing."""

    def score(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,), equal to gathering from
        :meth:`predict`.
        """

    def update(self, hidden: Tensor, targets: Tensor) -> None:
        """Learn from observed pairs, after they were scored."""

    def reset(self) -> None:
        """Return to the state after construction."""
