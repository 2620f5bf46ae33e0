"""What a mini-batch of queries adapts to, and what every solver takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from hebblm.types import OutputHead


def key_products(hidden: Tensor, keys: Tensor) -> Tensor:
    """Return ``h_k . h`` (n, K) of queries (n, D) and their keys (n, K, D), which may be of another precision."""
    return torch.einsum("nkd,nd->nk", keys.to(hidden.dtype), hidden)


@dataclass(frozen=True)
class Problem:
    """Maximise ``sum_k w_k log P(y_k | h_k)`` over a query's own copy of the head (Eq. 5).

    Args:
        head: the base head, which stays as it is.
        hidden: (n, D) queries.
        keys: (n, K, D) neighbours; zero where there is no entry.
        labels: (n, K) int64.
        weights: (n, K) ``w_k = c_k / |N|``; zero where there is no entry, which takes it out of every sum.
        base_logits: (n, V) ``W h + b`` of the queries.
        log_normalizers: (n, K) logsumexp of the base logits of each key, or None where they are not known.
        products: (n, K) ``h_k . h``, or None where they are not known yet.
        ranking: (n, m) int64, the classes that are worth following, the first ones most; None where all are.
    """

    head: OutputHead
    hidden: Tensor
    keys: Tensor
    labels: Tensor
    weights: Tensor
    base_logits: Tensor
    log_normalizers: Tensor | None
    products: Tensor | None = None
    ranking: Tensor | None = None

    def rows(self, index: slice | Tensor) -> Problem:
        """Return the same for some of the queries: a slice, or a bool or int64 tensor."""
        part = Problem(
            self.head,
            self.hidden[index],
            self.keys[index],
            self.labels[index],
            self.weights[index],
            self.base_logits[index],
            *(
                None if known is None else known[index]
                for known in (self.log_normalizers, self.products, self.ranking)
            ),
        )
        for known in {"base_probs", "query_products", "squared_norms", "gram"} & self.__dict__.keys():
            part.__dict__[known] = self.__dict__[known][index]
        return part

    @property
    def one(self) -> float:
        """The bias's share in every scalar product: 1, or 0 for a head without a bias."""
        return 0.0 if self.head.bias is None else 1.0

    @cached_property
    def base_probs(self) -> Tensor:
        """The base's probabilities (n, V) of the queries."""
        return self.base_logits.softmax(1)

    @cached_property
    def query_products(self) -> Tensor:
        """``g_k = h_k . h + 1`` (n, K): how a change along key k moves the query's logits."""
        products = key_products(self.hidden, self.keys) if self.products is None else self.products
        return products + self.one

    @cached_property
    def squared_norms(self) -> Tensor:
        """``||h_k||^2 + 1`` (n, K), the diagonal of G."""
        lengths: Tensor = torch.linalg.vector_norm(self.keys, dim=2)
        return lengths.square_() + self.one

    @cached_property
    def gram(self) -> Tensor:
        """``G = H H^T + 1`` (n, K, K)."""
        return self.keys @ self.keys.transpose(1, 2) + self.one


@dataclass(frozen=True, slots=True)
class Solution:
    """Where a descent ended.

    Args:
        delta: (n, V) change of the logits, kept apart from the base logits because single precision would swallow
            small steps.
        rose: (n,) bool, whether the neighbours' loss rose; False for a query that was not looked at.
        error: (n,) what the solver's approximations are expected to cost, in nats a token.
        rates: (n,) the learning rates that were followed.
    """

    delta: Tensor
    rose: Tensor
    error: Tensor
    rates: Tensor


class Solver(Protocol):
    """Follows the descent of n queries at their own rates."""

    def __call__(self, problem: Problem, rates: Tensor, watch: Tensor) -> Solution:
        """Return the solution.

        ``rates`` (n,) are learning rates; only the queries in ``watch`` (n,) bool are looked at for a rise.
        """


def weighted_loss(
    logits: Tensor, labels: Tensor, weights: Tensor, normalizers: Tensor | None = None
) -> Tensor:
    """Return ``-sum_k w_k log softmax(Z_k)[y_k]`` (n,) in nats for logits Z (n, K, V).

    ``normalizers`` (n, K) are their logsumexp where that is known; one of an entry that weighs nothing is not read.
    """
    taken = logits.gather(2, labels.unsqueeze(2)).squeeze(2)  # (n, K)
    totals = logits.logsumexp(2) if normalizers is None else normalizers.to(logits.dtype)
    return torch.where(weights > 0, weights * (totals - taken), 0).sum(1)


def rose(before: Tensor, after: Tensor) -> Tensor:
    """Say where a loss (n,) grew beyond rounding or ceased to be finite."""
    slack = 16 * torch.finfo(before.dtype).eps * before.abs()
    return ~(torch.isfinite(after) & (after <= before + slack))
