"""Adaptations that diverge: found query by query, and run again at a rate that cannot."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem, Solution, Solver

STABLE = 4.0  # the softmax loss has a Hessian of at most 1/2, so descent cannot climb below 2 / (1/2)
MARGIN = 0.9  # room for what power iteration underestimates
ITERATIONS = 40
BACKTRACKS = 12


def largest_eigenvalue(problem: Problem) -> Tensor:
    """Return the largest eigenvalue (n,) of ``diag(w) G``, with w = c / |N| and G = H H^T + 1.

    Power iteration on the symmetric form ``sqrt(w) G sqrt(w)``, which has the same eigenvalues. The start is
    fixed and does not depend on the number of masked entries; the result is never above the true value.
    """
    root = problem.weights.sqrt()  # (n, K)
    matrix = problem.gram * root.unsqueeze(1) * root.unsqueeze(2)  # (n, K, K)
    index = torch.arange(root.shape[1], device=root.device, dtype=root.dtype)
    vector = (root * (1 + (index * index).cos() / 2)).unsqueeze(2)  # (n, K, 1)
    tiny = torch.finfo(root.dtype).tiny
    for _ in range(ITERATIONS):
        vector = matrix @ vector
        vector = vector / vector.norm(dim=1, keepdim=True).clamp_min(tiny)
    return (vector * (matrix @ vector)).sum((1, 2))


def suspects(problem: Problem, *, rate: float, pull: float) -> Tensor:
    """Return the queries (n,) bool that may diverge: lr times the trace of ``diag(w) G`` exceeds 4.

    The trace is never below the largest eigenvalue, costs next to nothing, and looking at a descent costs less than
    a better bound does. The pull toward the base head adds its own curvature.
    """
    trace = (problem.weights * problem.squared_norms).sum(1)  # (n,)
    return rate * (trace + 2 * pull) > STABLE


def guarded_descent(problem: Problem, solve: Solver, rates: Tensor, *, rate: float, pull: float) -> Solution:
    """Run plain descent; where the rate is too large and the neighbours' loss rose, run it at a stable rate.

    Args:
        problem: the queries and their neighbours.
        solve: follows the descent.
        rates: (n,) rates to begin with; a query whose rate is below ``rate`` was found to diverge before, and is
            not looked at again.
        rate: asked for.
        pull: rate of the pull toward the base head.

    Returns:
        The solution, its flags marking the queries that were run again.
    """
    watch = suspects(problem, rate=rate, pull=pull) & (rates == rate)
    found = solve(problem, rates, watch)
    unstable = found.rose
    if bool(unstable.any()):
        part = problem.rows(unstable)
        stable = (MARGIN * STABLE / (largest_eigenvalue(part) + 2 * pull)).clamp_max(rate)
        again = solve(part, stable, torch.zeros_like(stable, dtype=torch.bool))
        found.delta[unstable], found.error[unstable] = again.delta, again.error
        found = replace(found, rates=rates.masked_scatter(unstable, stable))
    return found


def guarded_backtracking(problem: Problem, solve: Solver, rates: Tensor) -> Solution:
    """Run RMSprop, which has no such bound; quarter a query's rate until its neighbours' loss does not rise.

    Returns:
        The solution, its change zero where no rate was small enough, and its flags marking the queries that were
        run again.
    """
    found = solve(problem, rates, torch.ones_like(rates, dtype=torch.bool))
    pending = found.rose.nonzero().squeeze(1)  # (m,) queries still rising
    tried = rates.clone()
    for _ in range(BACKTRACKS):
        if pending.numel() == 0:
            break
        tried[pending] /= 4
        again = solve(problem.rows(pending), tried[pending], torch.ones_like(pending, dtype=torch.bool))
        found.delta[pending] = again.delta
        pending = pending[again.rose]
    found.delta[pending] = 0
    return replace(found, rates=tried)
