"""Plain gradient descent on the head, followed exactly in the span of the neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem, Solution, rose, weighted_loss


def key_logits(problem: Problem) -> Tensor:
    """Return the base logits of the keys (n, K, V)."""
    n, k, d = problem.keys.shape
    flat = problem.keys.reshape(n * k, d)
    weight, bias = problem.head.weight, problem.head.bias
    scores = flat @ weight.t() if bias is None else torch.addmm(bias, flat, weight.t())
    return scores.view(n, k, weight.shape[0])


def solve_exact(problem: Problem, rates: Tensor, watch: Tensor, *, steps: int, pull: float) -> Solution:
    """Follow S steps of descent exactly; no (V, D) change is ever formed.

    Every step changes the head by ``dW = R^T diag(a) H``, ``a = lr w``, so that it is enough to follow the
    residuals ``R = Y - softmax(Z)`` of the K keys (Eq. 5 and 6)::

        Z_{s+1} = Z_s + (H H^T + 1) diag(a) R_s        delta = sum_s R_s^T (a * (H h + 1))

    With a pull of rate p toward the base head, ``dW_{s+1} = (1 - lr p) dW_s + R_s^T diag(a) H``, and both
    ``Z - Z_0`` and delta shrink by the same factor before each step.

    Args:
        problem: the queries and their neighbours.
        rates: (n,) learning rates.
        watch: (n,) bool, the queries whose neighbours' loss is compared before and after.
        steps: number S of steps, at least 1.
        pull: rate of the pull toward the base head (Sprechmann et al. 2018).

    Returns:
        The change of the logits and the rise flags, False outside ``watch``; its error is 0.
    """
    labels, weights = problem.labels.unsqueeze(2), problem.weights
    step_sizes = rates.unsqueeze(1) * weights  # a (n, K)
    alpha = (step_sizes * problem.query_products).unsqueeze(1)  # (n, 1, K)
    keep = (1 - rates * pull).view(-1, 1, 1)
    logits = key_logits(problem)  # Z (n, K, V)
    base = logits.clone() if pull > 0 and steps > 1 else None
    watched = bool(watch.any())
    mixing = problem.gram * step_sizes.unsqueeze(1) if steps > 1 or watched else None  # M (n, K, K)
    before = weighted_loss(logits[watch], problem.labels[watch], weights[watch]) if watched else None

    delta = logits.new_zeros(logits.shape[0], 1, logits.shape[2])  # (n, 1, V)
    residual = torch.empty_like(logits)  # R (n, K, V)
    ones = logits.new_ones(labels.shape)
    for step in range(steps):
        torch.softmax(logits, dim=2, out=residual)
        residual.neg_().scatter_add_(2, labels, ones)
        delta = delta * keep + alpha @ residual
        if base is not None:
            logits.sub_(base).mul_(keep).add_(base)
        if mixing is not None and step + 1 < steps:
            logits.baddbmm_(mixing, residual)

    rises = torch.zeros_like(watch)
    if before is not None and mixing is not None:
        last = torch.baddbmm(logits[watch], mixing[watch], residual[watch])
        rises[watch] = rose(before, weighted_loss(last, problem.labels[watch], weights[watch]))
    return Solution(delta.squeeze(1), rises, torch.zeros_like(rates), rates)
