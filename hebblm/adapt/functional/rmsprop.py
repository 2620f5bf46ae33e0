"""RMSprop on the head: no dual form, so each query's change of the head is formed."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem, Solution, rose, weighted_loss

SMOOTHING = 0.99  # the defaults of torch.optim.RMSprop
EPSILON = 1e-8


def solve_rmsprop(problem: Problem, rates: Tensor, watch: Tensor, *, steps: int, pull: float) -> Solution:
    """Follow S steps of RMSprop with a fresh state for each query.

    With the gradient ``g = -(Y - softmax(Z))^T diag(w) H`` of the neighbours' loss (Eq. 5)::

        v <- 0.99 v + 0.01 g^2        dW <- (1 - lr p) dW - lr g / (sqrt(v) + 1e-8)

    Args:
        problem: the queries and their neighbours.
        rates: (n,) learning rates.
        watch: (n,) bool, the queries whose neighbours' loss is compared before and after.
        steps: number S of steps, at least 1.
        pull: rate p of the pull toward the base head, outside the running mean of squares.

    Returns:
        The change of the logits and the rise flags, False outside ``watch``; its error is 0.
    """
    head, labels = problem.head, problem.labels
    keys, hidden, weight = problem.keys, problem.hidden, head.weight
    if head.bias is not None:  # the bias is the weight of a constant input
        keys = torch.cat([keys, keys.new_ones(*keys.shape[:2], 1)], dim=2)  # (n, K, D + 1)
        hidden = torch.cat([hidden, hidden.new_ones(hidden.shape[0], 1)], dim=1)  # (n, D + 1)
        weight = torch.cat([weight, head.bias.unsqueeze(1)], dim=1)  # (V, D + 1)
    rate = rates.view(-1, 1, 1)
    base = keys @ weight.t()  # Z_0 (n, K, V)
    change = base.new_zeros(keys.shape[0], *weight.shape)  # dW (n, V, D + 1)
    square = torch.zeros_like(change)  # v
    ones = base.new_ones(*labels.shape, 1)
    for _ in range(steps):
        logits = torch.baddbmm(base, keys, change.transpose(1, 2))  # (n, K, V)
        residual = (-logits.softmax(2)).scatter_add_(2, labels.unsqueeze(2), ones)
        gradient = -(residual * problem.weights.unsqueeze(2)).transpose(1, 2) @ keys  # (n, V, D + 1)
        square.mul_(SMOOTHING).addcmul_(gradient, gradient, value=1 - SMOOTHING)
        change = change * (1 - rate * pull) - rate * gradient / (square.sqrt() + EPSILON)

    delta = torch.einsum("nvd,nd->nv", change, hidden)
    rises = torch.zeros_like(watch)
    if bool(watch.any()):
        last = torch.baddbmm(base[watch], keys[watch], change[watch].transpose(1, 2))
        before = weighted_loss(base[watch], labels[watch], problem.weights[watch])
        rises[watch] = rose(before, weighted_loss(last, labels[watch], problem.weights[watch]))
    return Solution(delta, rises, torch.zeros_like(rates), rates)
