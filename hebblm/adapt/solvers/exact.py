"""Plain gradient descent on the head, followed exactly in the span of the neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.solvers.problem import Descent, Problem, Solution, loss_increased


def solve_exact(problem: Problem, descent: Descent) -> Solution:
    """Follow S steps of descent exactly; no (V, D) change is ever formed.

    Every step changes the head by ``dW = R^T diag(a) H``, so it is enough to follow the residuals
    ``R = Y - softmax(Z)`` of the K keys (Eq. 5 and 6)::

        Z_{s+1} = Z_s + (H H^T + 1) diag(a) R_s        delta = sum_s R_s^T (a * (H h + 1))

    With a pull of rate p toward the base head (Sprechmann et al. 2018), ``dW`` shrinks by ``1 -
    rate p`` before each step is added, and so do ``Z - Z_0`` and delta.
    """
    sizes, steps, last_step = descent.sizes, descent.steps, descent.steps + descent.finish
    keys, labels = problem.keys, problem.labels.unsqueeze(2)
    head, shrink = problem.head, descent.keep.view(-1, 1, 1)
    # what a residual does to the query (n, 1, K)
    alpha = (sizes * (problem.products + problem.one)).unsqueeze(1)
    logits = keys @ head.weight.t()  # Z (n, K, V)
    if head.bias is not None:
        logits += head.bias
    logits = head.capped(logits)
    pulled = bool((descent.keep != 1).any())
    base = logits.clone() if pulled else logits  # Z_0; not read again without a pull
    # of a residual to the keys (n, K, K)
    mixing = (keys @ keys.transpose(1, 2) + problem.one) * sizes.unsqueeze(1)
    # R (n, K, V), written in place: it is the largest tensor besides Z
    residual = torch.empty_like(logits)
    ones = logits.new_ones(labels.shape)
    delta = logits.new_zeros(logits.shape[0], 1, logits.shape[2])  # (n, 1, V)
    first = last = logits.new_zeros(len(sizes))
    for step in range(last_step):
        torch.softmax(logits, dim=2, out=residual)
        last = _loss(residual.gather(2, labels), sizes)
        first = first if step else last
        if step == steps:  # one more softmax, which was for the loss alone
            break
        residual.neg_().scatter_add_(2, labels, ones)  # Y - softmax(Z)
        delta = delta * shrink + alpha @ residual
        if step + 1 < last_step:
            if pulled:
                logits.sub_(base).mul_(shrink).add_(base)
            logits.baddbmm_(mixing, residual)
    return Solution(delta.squeeze(1), loss_increased(first, last))


def _loss(taken: Tensor, sizes: Tensor) -> Tensor:
    """``-sum_k a_k log p_k`` (n,) for the labels' probabilities (n, K, 1)."""
    return -torch.where(sizes > 0, sizes * taken.squeeze(2).log(), 0).sum(1)
