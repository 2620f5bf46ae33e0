"""How the residuals of the keys move each other's logits: ``Z <- Z + (H H^T + 1) diag(a) R``, whole or thin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem

RANK = 16  # directions that a thin factor keeps
RIDGE = 8  # in units of rounding of the trace
WORTH = 4  # a factor pays where there are so many times more neighbours
# Nats a token for each step after the first, by sum_k |alpha_k| sum_k a_k e_k with e_k the part of ||h_k||^2 that the
# factor misses: three times the largest found on the states of a trained language model.
MISSED = 2.5e-4


class Mixing(Protocol):
    """Applies M = (H H^T + 1) diag(a)."""

    def product(self, values: Tensor) -> Tensor:
        """Return ``M values`` for values (n, K, m)."""

    def rows(self, index: slice | Tensor) -> Mixing:
        """Return the same for some of the queries."""

    def read(self) -> Tensor:
        """Return what :meth:`add_to` has to be told of ``Y - P``: rows (n, r, K) whose products with it are formed."""

    def add_to(
        self, logits: Tensor, probs: Tensor, products: Tensor, labels: Tensor, overlap: Tensor
    ) -> None:
        """Add ``M (Y - P)`` to the logits, in place; the last column of P counts ``overlap`` times.

        Args:
            logits: (n, K, m).
            probs: (n, K, m) P; may be overwritten.
            products: (n, r, m) of the rows that :meth:`read` gave with ``Y - P``; may be overwritten.
            labels: (n, K) positions of the labels Y.
            overlap: (n, 1).
        """


@dataclass(frozen=True, slots=True)
class WholeMixing:
    """M as it is: (n, K, K)."""

    matrix: Tensor

    @classmethod
    def of(cls, problem: Problem, step_sizes: Tensor) -> WholeMixing:
        """Return M for ``a`` = ``step_sizes`` (n, K)."""
        return cls(problem.gram * step_sizes.unsqueeze(1))

    def product(self, values: Tensor) -> Tensor:
        """Return ``M values``."""
        return self.matrix @ values

    def rows(self, index: slice | Tensor) -> WholeMixing:
        """Return the same for some of the queries."""
        return WholeMixing(self.matrix[index])

    def read(self) -> Tensor:
        """Nothing: P itself is used."""
        return self.matrix[:, :0]

    def add_to(
        self, logits: Tensor, probs: Tensor, products: Tensor, labels: Tensor, overlap: Tensor
    ) -> None:
        """Add ``M (Y - P)``."""
        where = labels.unsqueeze(2)
        residual = probs.neg_().scatter_add_(2, where, probs.new_ones(where.shape))
        residual[:, :, -1] *= overlap
        logits.baddbmm_(self.matrix, residual)


@dataclass(frozen=True, slots=True)
class ThinMixing:
    """M through a factor: ``H H^T + 1 ~ U U^T``.

    Args:
        factor: (n, K, r) U.
        scaled: (n, r, K) ``U^T diag(a)``.
    """

    factor: Tensor
    scaled: Tensor

    @classmethod
    def of(cls, factor: Tensor, step_sizes: Tensor) -> ThinMixing:
        """Return M for U (n, K, r) and ``a`` (n, K)."""
        return cls(factor, (factor * step_sizes.unsqueeze(2)).transpose(1, 2).contiguous())

    def product(self, values: Tensor) -> Tensor:
        """Return ``U U^T diag(a) values``."""
        return self.factor @ (self.scaled @ values)

    def rows(self, index: slice | Tensor) -> ThinMixing:
        """Return the same for some of the queries."""
        return ThinMixing(self.factor[index], self.scaled[index])

    def read(self) -> Tensor:
        """Return ``U^T diag(a)``."""
        return self.scaled

    def add_to(
        self, logits: Tensor, probs: Tensor, products: Tensor, labels: Tensor, overlap: Tensor
    ) -> None:
        """Add ``U (U^T diag(a) (Y - P))``; the residual itself is never formed."""
        products[:, :, -1] *= overlap
        logits.baddbmm_(self.factor, products)


def thin_factor(problem: Problem) -> Tensor:
    """Return U (n, K, r) with ``U U^T`` near ``H H^T + 1``: the keys on their main directions, and the bias's share.

    One round of subspace iteration from some of the keys, weighted as the neighbours are (Halko et al. 2011). What is
    missing, ``H H^T - U U^T``, is positive semidefinite.
    """
    count = problem.labels.shape[1]
    first = torch.linspace(0, count - 1, RANK, device=problem.labels.device).long()
    some = problem.keys[:, first]  # (n, r, D)
    start = _on_rows(problem.keys, some)  # (n, K, r)
    main = (start * problem.weights.unsqueeze(2)).transpose(1, 2) @ problem.keys  # (n, r, D)
    factor = _on_rows(problem.keys, main)
    if problem.one:
        factor = torch.cat([factor, factor.new_ones(*factor.shape[:2], 1)], 2)
    return factor


def _on_rows(keys: Tensor, rows: Tensor) -> Tensor:
    """Return U (n, K, r) with ``U U^T`` the products of the keys' projections on the span of ``rows`` (n, r, D).

    ``U = H X^T L^-T`` with ``X X^T = L L^T``; rows that depend on each other are told apart by a small ridge, which
    can only make the products smaller.
    """
    gram = rows @ rows.transpose(1, 2)  # (n, r, r)
    limits = torch.finfo(gram.dtype)
    ridge = (RIDGE * limits.eps * gram.diagonal(dim1=1, dim2=2).sum(1)).clamp_min(limits.tiny**0.5)  # (n,)
    gram.diagonal(dim1=1, dim2=2).add_(ridge.unsqueeze(1))
    lower = torch.linalg.cholesky_ex(gram).L
    products = keys @ rows.transpose(1, 2)  # (n, K, r)
    factor: Tensor = torch.linalg.solve_triangular(lower.transpose(1, 2), products, upper=True, left=False)
    return factor


def missed(problem: Problem, factor: Tensor, step_sizes: Tensor, alpha: Tensor, steps: int) -> Tensor:
    """Return what a thin factor is expected to cost (n,), in nats a token.

    Args:
        problem: the queries and their neighbours.
        factor: (n, K, r) U.
        step_sizes: (n, K) a.
        alpha: (n, K).
        steps: number S of steps.
    """
    rest = (problem.squared_norms - factor.square().sum(2)).clamp_min(0)  # e (n, K)
    cost: Tensor = MISSED * (steps - 1) * alpha.abs().sum(1) * (step_sizes * rest).sum(1)
    return cost


def factor_pays(problem: Problem) -> bool:
    """Say whether a thin factor is cheaper than the whole matrix."""
    return min(problem.keys.shape[1:]) >= WORTH * RANK
