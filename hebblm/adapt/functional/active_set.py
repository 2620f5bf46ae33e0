"""Gradient descent on the head followed on a few hundred classes; the rest keeps its shape."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem, rose, weighted_loss

ACTIVE = 256  # classes followed
SAMPLED = 256  # classes that stand for the tail where the normalisers of the keys are not stored
SPARE = 32  # probable classes beside the labels, however many these are


def active_size(labels: int, classes: int, requested: int | None) -> int:
    """Return the number |A| of classes to follow: room for all K labels and some others, at most V."""
    return min(classes, max(ACTIVE if requested is None else requested, labels + SPARE))


def choose_active(base_logits: Tensor, labels: Tensor, present: Tensor, size: int) -> Tensor:
    """Choose the classes to follow: all labels of a query's neighbours, then the base's top classes.

    The choice knows nothing of the target, so that a score cannot depend on its answer.

    Args:
        base_logits: (n, V).
        labels: (n, K) int64.
        present: (n, K) bool, which labels are real.
        size: |A|, at least the number of different labels of any query.

    Returns:
        (n, size) int64, ascending, every class at most once.
    """
    lowest, highest = base_logits.new_tensor(-torch.inf), base_logits.new_tensor(torch.inf)
    boosted = base_logits.scatter_reduce(1, labels, torch.where(present, highest, lowest), "amax")
    return boosted.topk(size, dim=1, sorted=False).indices.sort(dim=1).values


def solve_active(
    problem: Problem, rates: Tensor, watch: Tensor, *, steps: int, pull: float, active: int
) -> tuple[Tensor, Tensor]:
    """Follow S steps of descent on an active set A of classes; an approximation of :func:`solve_exact`.

    All other classes of a key make up one more class, whose logit stays at the base's tail mass::

        Z_k[tail] = log(exp(lse_k) - sum_A exp(Z_k[v])),    lse_k = logsumexp of the key's base logits

    Its share in the softmax is the tail mass that the steps move. For a class v outside A the change is
    ``delta_v = -(sum_k alpha_k sum_s P_sk[tail]) p_x(v) / p_x(tail)``: every key's tail is taken to have the
    shape of the query's own. Without stored normalisers, the tail's logit is estimated from a sample of it.

    Args:
        problem: the queries and their neighbours.
        rates: (n,) learning rates.
        watch: (n,) bool, the queries whose neighbours' loss is compared before and after.
        steps: number S of steps, at least 1.
        pull: rate of the pull toward the base head.
        active: |A|, at least the number of different labels of any query.

    Returns:
        The change of the logits (n, V) and the rise flags (n,) bool, False outside ``watch``.
    """
    weights = problem.weights
    chosen = choose_active(problem.base_logits, problem.labels, weights > 0, active)  # A (n, A)
    tail = problem.base_logits.softmax(1).scatter_(1, chosen, 0.0)  # p_x outside A (n, V)
    tail_mass = tail.sum(1, keepdim=True).clamp_max(1.0)  # p_x(tail) (n, 1)

    logits = logits_of(problem, torch.nn.functional.pad(chosen, (0, 1)))  # Z (n, K, A + 1)
    if problem.log_normalizers is None:
        logits[:, :, -1] = sampled_tail(problem, tail)
    else:
        logits[:, :, -1] = known_tail(problem, logits[:, :, :-1], problem.log_normalizers)
    # A masked entry's label may lie outside A; its weight is zero, so any position serves.
    labels = torch.searchsorted(chosen, problem.labels).clamp_max_(active - 1)  # (n, K) positions in A
    step_sizes = rates.unsqueeze(1) * weights  # a (n, K)
    alpha = (step_sizes * problem.query_products()).unsqueeze(1)  # (n, 1, K)
    keep = (1 - rates * pull).view(-1, 1, 1)
    base = logits.clone() if pull > 0 and steps > 1 else None
    watched = bool(watch.any())
    mixing = problem.gram() * step_sizes.unsqueeze(1) if steps > 1 or watched else None  # M (n, K, K)
    before = weighted_loss(logits, labels, weights) if watched else None

    change = logits.new_zeros(logits.shape[0], 1, active + 1)  # delta on A, and minus the moved tail mass
    ones = logits.new_ones(*labels.shape, 1)
    for step in range(steps):
        residual = logits.softmax(2).neg_().scatter_add_(2, labels.unsqueeze(2), ones)  # R (n, K, A + 1)
        change = change * keep + alpha @ residual
        if mixing is not None and (watched or step + 1 < steps):
            residual[:, :, -1] = 0  # the tail's logit stays
            if base is not None:
                logits.sub_(base).mul_(keep).add_(base)
            logits.baddbmm_(mixing, residual)

    change = change.squeeze(1)  # (n, A + 1)
    tiny = torch.finfo(tail.dtype).tiny
    delta = tail.mul_(change[:, -1:] / tail_mass.clamp_min(tiny)).scatter_(1, chosen, change[:, :-1])
    if before is None:
        return delta, torch.zeros_like(watch)
    return delta, watch & rose(before, weighted_loss(logits, labels, weights))


def logits_of(problem: Problem, classes: Tensor) -> Tensor:
    """Return the base logits of the keys on some classes: (n, K, A) for classes (n, A)."""
    rows = problem.head.weight[classes].transpose(1, 2)  # (n, D, A)
    if problem.head.bias is None:
        return problem.keys @ rows
    return torch.baddbmm(problem.head.bias[classes].unsqueeze(1), problem.keys, rows)


def known_tail(problem: Problem, inside: Tensor, log_normalizers: Tensor) -> Tensor:
    """Return the logit (n, K) of all classes outside A together: the stored normaliser less what is in A."""
    followed = inside.logsumexp(2)  # (n, K)
    total = torch.where(problem.weights > 0, log_normalizers.to(followed.dtype), followed)
    outside = (followed - total).clamp_max(0).expm1().neg()  # share of the tail
    return total + outside.clamp_min(torch.finfo(outside.dtype).tiny).log()  # an empty tail stays finite


def sampled_tail(problem: Problem, tail: Tensor) -> Tensor:
    """Estimate the logit (n, K) of all classes outside A together, from m classes of the query's tail.

    ``sum_tail exp(Z_k[v]) = sum_tail exp(Z_x[v]) * E[exp(Z_k[v] - Z_x[v])]`` with v from the query's tail.
    The classes stand at its quantiles, which has less variance than a draw and nothing random.

    Args:
        problem: the queries and their neighbours.
        tail: (n, V) base probabilities of the queries, zero on A.
    """
    reached = tail.cumsum(1)  # (n, V)
    mass = reached[:, -1:]  # (n, 1)
    levels = (torch.arange(SAMPLED, device=tail.device, dtype=tail.dtype) + 0.5) / SAMPLED
    picked = torch.searchsorted(reached, levels * mass).clamp_max_(tail.shape[1] - 1)  # (n, m)
    ratios = logits_of(problem, picked) - problem.base_logits.gather(1, picked).unsqueeze(1)  # (n, K, m)
    scale = mass.clamp_min(torch.finfo(tail.dtype).tiny).log() + problem.base_logits.logsumexp(
        1, keepdim=True
    )
    return scale + ratios.logsumexp(2) - math.log(SAMPLED)
