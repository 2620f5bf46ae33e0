"""How many classes the descent of a query has to follow, told before it is followed."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem

ACTIVE = 255  # classes followed; with the tail as one more, rows of whole vector registers
NARROW = 159  # where these serve, every pass over the keys' logits is the shorter
SHAPES = (
    3.0  # by how much the shapes of tails differ, in what they hold; 2 would be too little for a sharp head
)
SPARE = 32  # probable classes beside the labels, however many these are


def active_size(labels: int, classes: int, requested: int | None) -> int:
    """Return the number |A| of classes to follow: room for all K labels and some others, at most V."""
    return min(classes, max(ACTIVE if requested is None else requested, labels + SPARE))


def rank_classes(base_logits: Tensor, labels: Tensor, present: Tensor, size: int) -> Tensor:
    """Rank the classes to follow: all labels of a query's neighbours first, then the base's top classes.

    The choice knows nothing of the target, so that a score cannot depend on its answer.

    Args:
        base_logits: (n, V).
        labels: (n, K) int64.
        present: (n, K) bool, which labels are real.
        size: classes wanted, at least the number of different labels of any query.

    Returns:
        (n, size) int64, every class at most once; the order among the labels is no particular one.
    """
    lowest, highest = base_logits.new_tensor(-torch.inf), base_logits.new_tensor(torch.inf)
    boosted = base_logits.scatter_reduce(1, labels, torch.where(present, highest, lowest), "amax")
    return boosted.topk(size, dim=1).indices


def leading(problem: Problem, size: int) -> Tensor:
    """Return the first ``size`` classes of the ranking (n, size), which is made where it is not long enough."""
    ranking = problem.ranking
    if ranking is None or ranking.shape[1] < size:
        ranking = rank_classes(problem.base_logits, problem.labels, problem.weights > 0, size)
    return ranking[:, :size]


def narrow_serves(problem: Problem, *, rate: float, steps: int, tolerance: float) -> Tensor:
    """Say for which queries (n,) bool the ``NARROW`` first classes of the ranking are enough.

    They have to hold the labels with ``SPARE`` others, and the error of one shape for all tails has to be below the
    tolerance: ``3 (sum_k |alpha_k|) S sum_v p_x(v)^2`` with v outside A, as
    :func:`~hebblm.adapt.functional.active_set.solve_active` finds it, if no step moved mass out of the tail.
    """
    chosen = leading(problem, NARROW)  # (n, A)
    probs = problem.base_probs  # (n, V)
    inside = probs.gather(1, chosen).square().sum(1)  # (n,)
    squares = torch.linalg.vector_norm(probs, dim=1).square() - inside  # (n,)
    alpha = rate * (problem.weights * problem.query_products.abs()).sum(1)  # (n,)
    error = SHAPES * alpha * steps * squares.clamp_min(0)
    # A masked entry's label is none; the nearest entry's in its place adds nothing to the count.
    labels = torch.where(problem.weights > 0, problem.labels, problem.labels[:, :1])
    serves: Tensor = (distinct(labels) + SPARE <= NARROW) & (error <= tolerance)
    return serves


def distinct(labels: Tensor) -> Tensor:
    """Return how many different labels (n,) each row of (n, K) holds."""
    ordered = labels.sort(dim=1).values
    return (ordered.diff(dim=1) != 0).sum(1) + min(1, labels.shape[1])
