"""RMSprop on the head: no dual form, so each query's change of the head is formed."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt.solvers.problem import Problem, Solution, loss_increased

SMOOTHING = 0.99  # the defaults of torch.optim.RMSprop
EPSILON = 1e-8
BACKTRACKS = 12


def solve_rmsprop(
    problem: Problem, *, lr: float, steps: int, l2_to_base: float, guarded: bool
) -> Solution:
    """Follow S >= 1 steps of RMSprop with a fresh state for each query.

    With the gradient ``g = -(Y - softmax(Z))^T diag(w) H`` of the neighbours' loss (Eq. 5)::

        v <- 0.99 v + 0.01 g^2        dW <- (1 - lr p) dW - lr g / (sqrt(v) + 1e-8)

    The pull p toward the base head stays outside the running mean of squares. RMSprop has no bound
    on a stable rate: ``guarded`` quarters a query's rate until the neighbours' loss does not rise,
    and keeps the base head if no rate is small enough; queries whose loss rose at first are marked
    in ``loss_increased``.
    """
    rates = torch.full_like(problem.hidden[:, 0], lr)  # (n,)
    change, rises = _follow(problem, rates, steps, l2_to_base)
    if not guarded:
        return Solution(change, rises)
    pending = rises.nonzero().squeeze(1)  # (m,) queries still rising
    for _ in range(BACKTRACKS):
        if pending.numel() == 0:
            break
        rates[pending] /= 4
        change[pending], again = _follow(problem.rows(pending), rates[pending], steps, l2_to_base)
        pending = pending[again]
    change[pending] = 0
    return Solution(change, rises)


def _follow(
    problem: Problem, rates: Tensor, steps: int, l2_to_base: float
) -> tuple[Tensor, Tensor]:
    """Return the change of the logits (n, V) in nats at rates (n,), and whether the neighbours'
    loss rose overall.
    """
    head, labels = problem.head, problem.labels.unsqueeze(2)
    keys, hidden, weight = problem.keys, problem.hidden, head.weight
    if head.bias is not None:  # the bias is the weight of a constant input
        keys = torch.cat([keys, keys.new_ones(*keys.shape[:2], 1)], dim=2)  # (n, K, D + 1)
        hidden = torch.cat([hidden, hidden.new_ones(hidden.shape[0], 1)], dim=1)  # (n, D + 1)
        weight = torch.cat([weight, head.bias.unsqueeze(1)], dim=1)  # (V, D + 1)
    rate = rates.view(-1, 1, 1)
    base = head.capped(keys @ weight.t())  # Z_0 (n, K, V)
    change = base.new_zeros(keys.shape[0], *weight.shape)  # dW (n, V, D + 1)
    square = torch.zeros_like(change)  # v
    ones = base.new_ones(labels.shape)
    for _ in range(steps):
        logits = torch.baddbmm(base, keys, change.transpose(1, 2))  # (n, K, V)
        residual = (-logits.softmax(2)).scatter_add_(2, labels, ones)  # Y - softmax(Z)
        # (n, V, D + 1)
        gradient = -(residual * problem.weights.unsqueeze(2)).transpose(1, 2) @ keys
        square.mul_(SMOOTHING).addcmul_(gradient, gradient, value=1 - SMOOTHING)
        change = change * (1 - rate * l2_to_base) - rate * gradient / (square.sqrt() + EPSILON)
    last = torch.baddbmm(base, keys, change.transpose(1, 2))
    rises = loss_increased(_loss(base, problem), _loss(last, problem))
    return torch.einsum("nvd,nd->nv", change, hidden), rises


def _loss(logits: Tensor, problem: Problem) -> Tensor:
    """``-sum_k w_k log softmax(Z_k)[y_k]`` (n,) in nats for logits Z (n, K, V)."""
    taken = logits.gather(2, problem.labels.unsqueeze(2)).squeeze(2)  # (n, K)
    return torch.where(problem.weights > 0, problem.weights * (logits.logsumexp(2) - taken), 0).sum(
        1
    )
