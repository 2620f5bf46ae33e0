"""What a mini-batch of queries adapts to, and what every solver takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from hebblm.adapt.functional.blocks import blocks
from hebblm.types import OutputHead


def key_products(hidden: Tensor, keys: Tensor) -> Tensor:
    """Return ``h_k . h`` (n, K) of queries (n, D) and their keys (n, K, D), which may be of another precision."""
    # A row times a matrix: several times as fast as the matrix times a column.
    return torch.bmm(hidden.unsqueeze(1), keys.to(hidden.dtype).transpose(1, 2)).squeeze(1)


def key_lengths(keys: Tensor) -> Tensor:
    """Return ``||h_k||^2`` (n, K) of keys (n, K, D)."""
    lengths: Tensor = torch.linalg.vector_norm(keys, dim=2)
    return lengths.square_()


def take(rows: Tensor, index: slice | Tensor) -> Tensor:
    """Return some rows: a view of a slice, a copy of an int64 tensor's."""
    return rows.index_select(0, index) if isinstance(index, Tensor) else rows[index]


def take_known(rows: Tensor | None, index: slice | Tensor) -> Tensor | None:
    """Return some rows of what may not be known yet."""
    return None if rows is None else take(rows, index)


@dataclass(frozen=True)
class Problem:
    """Maximise ``sum_k w_k log P(y_k | h_k)`` over a query's own copy of the head (Eq. 5).

    Args:
        head: the base head, which stays as it is.
        hidden: (n, D) queries.
        stored: (m, K, D) neighbours of the queries, and of others; zero where there is no entry.
        labels: (n, K) int64.
        weights: (n, K) ``w_k = c_k / |N|``; zero where there is no entry, which takes it out of every sum.
        scores: (m, V) ``W h + b`` of the queries, and of others.
        log_normalizers: (n, K) logsumexp of the base logits of each key, or None where they are not known.
        products: (n, K) ``h_k . h``, or None where they are not known yet.
        lengths: (n, K) ``||h_k||^2``, or None where they are not known yet.
        ranking: (n, R) int64, the classes that are worth following, the first ones most; None where all are.
        narrow: (n,) bool, for which the first few of them are enough, or None where that is not known.
        probs: (m, V) softmax of ``scores``, or None where it is not known yet.
        picked: (n,) int64, which rows of ``stored``, ``scores`` and ``probs`` are the queries'; None where all are,
            in order.
    """

    head: OutputHead
    hidden: Tensor
    stored: Tensor
    labels: Tensor
    weights: Tensor
    scores: Tensor
    log_normalizers: Tensor | None
    products: Tensor | None = None
    lengths: Tensor | None = None
    ranking: Tensor | None = None
    narrow: Tensor | None = None
    probs: Tensor | None = None
    picked: Tensor | None = None

    def rows(self, index: slice | Tensor) -> Problem:
        """Return the same for some of the queries: a slice, or a bool or int64 tensor.

        What is wide is not copied before it is used; a few queries at a time, that is done in a processor's caches.
        """
        if isinstance(index, slice) and index.indices(len(self.hidden)) == (0, len(self.hidden), 1):
            return self
        if isinstance(index, Tensor) and index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        stored, scores, probs, picked = self.stored, self.scores, self.probs, self.picked
        if picked is not None:
            picked = picked[index]
        elif isinstance(index, Tensor):
            picked = index
        else:
            stored, scores = stored[index], scores[index]
            probs = None if probs is None else probs[index]
        return Problem(
            self.head,
            take(self.hidden, index),
            stored,
            take(self.labels, index),
            take(self.weights, index),
            scores,
            take_known(self.log_normalizers, index),
            take_known(self.products, index),
            take_known(self.lengths, index),
            take_known(self.ranking, index),
            take_known(self.narrow, index),
            probs,
            picked,
        )

    def measured(self) -> Problem:
        """Return the same with the keys' products and lengths known; the keys are read once for both."""
        products, lengths = [], []
        for some in blocks(4 * self.stored[:1].nbytes, len(self.hidden), self.hidden.device):
            part = self.rows(some)
            lengths.append(key_lengths(part.keys))
            products.append(
                part.products if part.products is not None else key_products(part.hidden, part.keys)
            )
        return replace(self, products=torch.cat(products), lengths=torch.cat(lengths))

    def _own(self, rows: Tensor) -> Tensor:
        """Return the queries' share of something that is stored for others as well."""
        return rows if self.picked is None else rows.index_select(0, self.picked)

    @cached_property
    def keys(self) -> Tensor:
        """The neighbours (n, K, D) in the queries' precision; stored keys may be of half of it."""
        return self._own(self.stored).to(self.hidden.dtype)

    @cached_property
    def base_logits(self) -> Tensor:
        """The base's logits (n, V) of the queries."""
        return self._own(self.scores)

    @property
    def one(self) -> float:
        """The bias's share in every scalar product: 1, or 0 for a head without a bias."""
        return 0.0 if self.head.bias is None else 1.0

    @cached_property
    def base_probs(self) -> Tensor:
        """The base's probabilities (n, V) of the queries."""
        return self.base_logits.softmax(1) if self.probs is None else self._own(self.probs)

    @cached_property
    def query_products(self) -> Tensor:
        """``g_k = h_k . h + 1`` (n, K): how a change along key k moves the query's logits."""
        products = key_products(self.hidden, self.keys) if self.products is None else self.products
        return products + self.one

    @cached_property
    def squared_norms(self) -> Tensor:
        """``||h_k||^2 + 1`` (n, K), the diagonal of G."""
        lengths = key_lengths(self.keys) if self.lengths is None else self.lengths
        return lengths + self.one

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
