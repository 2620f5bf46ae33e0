"""How many classes the descent of a query has to follow, told before it is followed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hebblm.adapt.functional.blocks import blocks
from hebblm.adapt.functional.grouping import distinct
from hebblm.adapt.functional.problem import Problem

ACTIVE = 255  # classes followed; with the tail as one more, rows of whole vector registers
NARROW = 159  # where these serve, every pass over the keys' logits is the shorter
SHAPES = (
    3.0  # by how much the shapes of tails differ, in what they hold; 2 would be too little for a sharp head
)
WIDE = 8  # arrays as wide as the vocabulary that are made and read again to rank the classes of a query
GROUP = 8  # classes that are compared with others by their largest first
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
    return top(boosted, size)


def top(values: Tensor, size: int) -> Tensor:
    """Return where the largest of each row (n, V) are (n, size), in descending order.

    The largest are in the groups whose largest are the largest, so that few of many values have to be compared; groups
    are taken across the row, where maxima are taken a vector register at a time.
    """
    classes = values.shape[1]
    count = classes // GROUP
    if count <= 2 * size:
        return values.topk(size, dim=1).indices
    groups = values[:, : count * GROUP].view(-1, GROUP, count)  # (n, G, V / G)
    picked = groups.amax(1).topk(size, dim=1, sorted=False).indices  # (n, size)
    members = count * torch.arange(GROUP, device=values.device).unsqueeze(1)  # (G, 1)
    rest = torch.arange(count * GROUP, classes, device=values.device).expand(len(values), -1)
    candidates = torch.cat([(picked.unsqueeze(1) + members).flatten(1), rest], 1)
    found = values.gather(1, candidates).topk(size, dim=1).indices
    return candidates.gather(1, found)


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


def marked(problem: Problem, *, rate: float, steps: int, tolerance: float) -> Problem:
    """Return the same with the base's probabilities, a ranking of ``ACTIVE`` classes, and where few of them serve."""
    problem = replace(problem, probs=problem.base_probs)
    rankings, narrow = [], []
    for some in blocks(WIDE * problem.scores[:1].nbytes, len(problem.hidden), problem.hidden.device):
        part = problem.rows(some)
        ranking = leading(part, ACTIVE)
        rankings.append(ranking)
        part = replace(part, ranking=ranking)
        narrow.append(narrow_serves(part, rate=rate, steps=steps, tolerance=tolerance))
    return replace(problem, ranking=torch.cat(rankings), narrow=torch.cat(narrow))
