"""Softmax problems of some queries and their neighbours, and the rates of MbPA's descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.checks import LrUnits
from hebblm.adapt.functional.changes import CompactChange
from hebblm.types import OutputHead

# cross-entropy has a Hessian of at most 1/2 in the logits, so descent cannot climb below 2 / (1/2)
STABLE = 4.0
MARGIN = 0.9  # room for what the power method leaves out


@dataclass(frozen=True, slots=True)
class Problem:
    """Softmax problem of each query: ``-sum_k w_k log P(y_k | h_k)`` over its own copy of the head
    (Eq. 5).
    """

    head: OutputHead  # the base's, weight (V, D) and bias (V,) or None; it stays as it is
    hidden: Tensor  # (n, D) queries
    keys: Tensor  # (n, K, D) neighbours of each
    labels: Tensor  # (n, K) int64
    weights: Tensor  # (n, K) w_k = c_k / |N|, not negative; zero where there is no entry
    base_logits: Tensor  # (n, V) W h + b
    # (n, K) logsumexp of each key's base logits in nats; None where not known
    log_normalizers: Tensor | None
    products: Tensor  # (n, K) h_k . h
    normalizers: Tensor | None = None  # (n,) logsumexp of the queries' logits; None if not known

    @property
    def one(self) -> float:
        """The bias's share in every scalar product: 1, or 0 for a head without a bias."""
        return 0.0 if self.head.bias is None else 1.0

    def rows(self, index: Tensor) -> Problem:
        """Return the problem of some of the queries, (m,) int64 or (n,) bool."""
        known = None if self.log_normalizers is None else self.log_normalizers[index]
        normalizers = None if self.normalizers is None else self.normalizers[index]
        return Problem(
            self.head,
            self.hidden[index],
            self.keys[index],
            self.labels[index],
            self.weights[index],
            self.base_logits[index],
            known,
            self.products[index],
            normalizers,
        )


@dataclass(frozen=True, slots=True)
class Descent:
    """Gradient descent's step sizes, decay and number of steps."""

    sizes: Tensor  # (n, K) a_k = rate w_k
    # (n,) what a step leaves of the change so far: 1 - rate p with p the pull toward the base head
    keep: Tensor
    steps: int  # S, at least 1
    # whether the loss is also taken after the last step, which costs as much as a step
    finish: bool = False

    @classmethod
    def at(
        cls, problem: Problem, lr: float, steps: int, l2_to_base: float, lr_units: LrUnits
    ) -> Descent:
        """Return descent at rate ``lr``, or at each query's ``lr / lambda_max`` if ``relative``.

        A relative pull is in the unit of the rate, so that a step takes back ``lr * l2_to_base`` in
        either case.
        """
        weights = problem.weights
        keep = torch.full_like(weights[:, 0], 1 - lr * l2_to_base)
        if lr_units != "relative":
            return cls(lr * weights, keep, steps, finish=lr_units == "guarded")
        return cls(lr * relative_weights(problem), keep, steps)

    @classmethod
    def stable(cls, problem: Problem, lr: float, steps: int, l2_to_base: float) -> Descent:
        """Return descent at the largest rate, at most ``lr``, at which the loss cannot rise."""
        largest = curvature(problem.keys, problem.weights, problem.one) + 2 * l2_to_base
        rates = (MARGIN * STABLE / largest).clamp_max(lr)  # (n,)
        return cls(rates.unsqueeze(1) * problem.weights, 1 - rates * l2_to_base, steps)


@dataclass(frozen=True, slots=True)
class Solution:
    """Final change of the logits after a descent."""

    # In nats, apart from the logits because single precision would swallow small steps: (n, V), or
    # compact where a few classes are followed.
    change: Tensor | CompactChange
    # (n,) bool, whether the neighbours' loss was above its first value where it was taken last:
    # before the last step, or after it where the descent asks for that.
    loss_increased: Tensor

    @property
    def delta(self) -> Tensor:
        """(n, V) the change of all logits, nats."""
        return self.change.dense() if isinstance(self.change, CompactChange) else self.change

    def put(self, index: Tensor, other: Solution) -> None:
        """Replace the change of some queries, (n,) bool or (m,) int64."""
        if isinstance(self.change, CompactChange):
            assert isinstance(other.change, CompactChange), "one solver gives one kind"
            self.change.put(index, other.change)
        else:
            assert isinstance(other.change, Tensor), "one solver gives one kind"
            self.change[index] = other.change


def key_products(hidden: Tensor, keys: Tensor) -> Tensor:
    """``h_k . h`` (N, K) of queries (N, D) and their keys (N, K, D), which may be of another
    precision.
    """
    # A row times a matrix: several times as fast as the matrix times a column.
    return torch.bmm(hidden.unsqueeze(1), keys.to(hidden.dtype).transpose(1, 2)).squeeze(1)


def curvature(keys: Tensor, weights: Tensor, one: float) -> Tensor:
    """Largest eigenvalue (n,) of ``A^1/2 (H H^T + 1) A^1/2``, A = diag(w), by the power method.

    The loss of Eq. 5 is ``sum_k w_k l(Z_k)`` in the keys' logits ``Z_k = W h_k + b``, and softmax
    cross-entropy l has a Hessian of at most 1/2 in them. So the Hessian in (W, b) is at most half
    this number, and the loss cannot rise at rate ``rho / lambda_max`` for rho <= 4.

    The start ``A^1/2 1`` is near the leading vector, because neighbours point the same way: after
    one iteration the Rayleigh quotient is within 1e-3 of the value on the states of trained
    language models. It exceeds the true value by rounding at most, and is 0 for a query without
    entries.
    """
    image = key_products(torch.bmm(weights.unsqueeze(1), keys).squeeze(1), keys)  # H H^T w (n, K)
    # A^1/2 v, with v = A^1/2 (H H^T + 1) A^1/2 A^1/2 1
    image = weights * (image + one * weights.sum(1, keepdim=True))
    image = image / image.abs().amax(1, keepdim=True).clamp_min(torch.finfo(image.dtype).tiny)
    mean = torch.bmm(image.unsqueeze(1), keys).squeeze(1)  # H^T A^1/2 v (n, D)
    squares = torch.where(weights > 0, image.square() / weights, 0).sum(1)  # |v|^2
    product = mean.square().sum(1) + one * image.sum(1).square()  # v^T A^1/2 (H H^T + 1) A^1/2 v
    return product / squares.clamp_min(torch.finfo(squares.dtype).tiny)


def relative_weights(problem: Problem) -> Tensor:
    """Return ``w_k / lambda_max`` (n, K), whose largest curvature is 1; 0 for a query without
    entries.
    """
    # Scaled to 1 first, so that neither a tiny nor a huge closeness leaves the range of the dtype.
    weights = problem.weights
    weights = weights / weights.amax(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    largest = curvature(problem.keys, weights, problem.one).unsqueeze(1)
    return torch.where(largest > 0, weights / largest, 0)


def loss_increased(before: Tensor, after: Tensor) -> Tensor:
    """Return where a loss (n,) grew by more than rounding or is no longer finite."""
    slack = 16 * torch.finfo(before.dtype).eps * before.abs()
    return ~(torch.isfinite(after) & (after <= before + slack))
