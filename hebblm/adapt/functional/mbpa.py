"""MbPA: the head adapted to the neighbours of one query, for that query alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hebblm.adapt.functional import checks
from hebblm.adapt.functional.active_set import active_size, solve_active
from hebblm.adapt.functional.closeness import Normalization, closeness
from hebblm.adapt.functional.descent import solve_exact
from hebblm.adapt.functional.guard import guarded_backtracking, guarded_descent
from hebblm.adapt.functional.problem import Problem, Solver
from hebblm.adapt.functional.rmsprop import solve_rmsprop
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

Method = Literal["exact", "fast"]
Optimizer = Literal["sgd", "rmsprop"]

EXACT_BYTES = 256 * 2**20  # working memory of one chunk of queries
FAST_BYTES = 32 * 2**20  # small chunks stay near the processor's caches


@dataclass(frozen=True, slots=True)
class MbpaResult:
    """What adaptation adds to the base logits.

    Args:
        delta: (N, V) change of the logits; zero for a query without neighbours.
        stabilized: (N,) bool, queries that diverged at the given rate and were run at a smaller one.
    """

    delta: Tensor
    stabilized: Tensor


@torch.no_grad()
def mbpa_delta(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    base_logits: Tensor,
    *,
    lr: float,
    steps: int,
    eps: float,
    method: Method = "exact",
    optimizer: Optimizer = "sgd",
    pull: float = 0.0,
    closeness_normalization: Normalization = "raw",
    guard: bool = True,
    active: int | None = None,
) -> MbpaResult:
    """Return the change of the logits that :func:`mbpa_logits` adds to ``base_logits`` (N, V).

    The arguments, the equation and what is raised are those of :func:`mbpa_logits`; the base logits are given
    so that several adapters can share them.
    """
    _check(neighbors, lr=lr, steps=steps, method=method, optimizer=optimizer, pull=pull, active=active)
    weights = closeness(neighbors.distances, neighbors.mask, eps=eps, normalization=closeness_normalization)
    weights = weights.to(hidden.dtype) / neighbors.mask.sum(1, keepdim=True).clamp_min(1)  # c_k / |N| (N, K)
    problem = Problem(
        head, hidden, neighbors.keys, neighbors.values, weights, base_logits, neighbors.log_normalizers
    )
    delta = torch.zeros_like(base_logits)
    stabilized = torch.zeros(hidden.shape[0], dtype=torch.bool, device=hidden.device)
    if lr == 0 or steps == 0:
        return MbpaResult(delta, stabilized)

    solve, chunk = _solver(problem, steps=steps, method=method, optimizer=optimizer, pull=pull, active=active)
    for start in range(0, hidden.shape[0], chunk):
        rows = slice(start, start + chunk)
        part = problem.rows(rows)
        if not guard:
            rates = torch.full_like(part.weights[:, 0], lr)
            delta[rows] = solve(part, rates, torch.zeros_like(stabilized[rows]))[0]
        elif optimizer == "sgd":
            delta[rows], stabilized[rows] = guarded_descent(part, solve, rate=lr, pull=pull)
        else:
            delta[rows], stabilized[rows] = guarded_backtracking(part, solve, rate=lr)
    return MbpaResult(delta, stabilized)


def mbpa_logits(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eps: float,
    method: Method = "exact",
    optimizer: Optimizer = "sgd",
    pull: float = 0.0,
    closeness_normalization: Normalization = "raw",
    guard: bool = True,
    active: int | None = None,
) -> Tensor:
    """Return each query's logits after memory-based parameter adaptation (Eq. 5, Sprechmann et al. 2018).

    Starting from the base head, ``steps`` gradient steps of rate ``lr`` maximise
    ``1/|N| sum_k c_k log P(y_k | h_k)`` over (W, b) for one query; the change is thrown away afterwards.

    Args:
        hidden: (N, D) queries.
        neighbors: their neighbours; |N| is the number of real entries of a query.
        head: weight (V, D) and bias (V,) or None. A head without a bias has none to adapt.
        lr: learning rate lambda, at least 0.
        steps: number of steps, at least 0.
        eps: the constant in c_k, above 0.
        method: ``exact`` agrees with automatic differentiation up to rounding; ``fast`` follows a few hundred
            classes (mean error below 1e-3 nats) and falls back to ``exact`` where the vocabulary has no more.
        optimizer: ``sgd`` is plain descent; ``rmsprop`` has a fresh state for each query and is slow.
        pull: rate of the pull back to the base head: ``W <- W + lr gradient - lr pull (W - W_0)``.
        closeness_normalization: ``raw`` c_k, or scaled to ``sum`` 1 or ``max`` 1.
        guard: run a query that diverges (its neighbours' loss rises, or is not finite) at a stable rate.
        active: number of classes that ``fast`` follows, by default 256. All labels among the neighbours are
            always followed.

    Returns:
        (N, V) logits; the base logits for a query without neighbours.

    Raises:
        UserError: a value out of range, an unknown word, K = 0, or ``fast`` together with ``rmsprop``.
    """
    base_logits = head.logits(hidden)
    result = mbpa_delta(
        hidden,
        neighbors,
        head,
        base_logits,
        lr=lr,
        steps=steps,
        eps=eps,
        method=method,
        optimizer=optimizer,
        pull=pull,
        closeness_normalization=closeness_normalization,
        guard=guard,
        active=active,
    )
    return base_logits + result.delta


def _check(
    neighbors: Neighbors,
    *,
    lr: float,
    steps: int,
    method: str,
    optimizer: str,
    pull: float,
    active: int | None,
) -> None:
    """Raise UserError for a value that the equations do not accept."""
    checks.some_neighbors(neighbors)
    checks.at_least("lr", lr, 0)
    checks.at_least("steps", steps, 0)
    checks.at_least("pull", pull, 0)
    checks.one_of("method", method, ("exact", "fast"))
    checks.one_of("optimizer", optimizer, ("sgd", "rmsprop"))
    if active is not None:
        checks.at_least("active", active, 1)
    if method == "fast" and optimizer == "rmsprop":
        raise UserError("method = 'fast' follows plain descent only; choose method = 'exact' for rmsprop")


def _solver(
    problem: Problem, *, steps: int, method: str, optimizer: str, pull: float, active: int | None
) -> tuple[Solver, int]:
    """Return the solver and how many queries it takes at a time."""
    classes, width = problem.head.weight.shape
    k, size = problem.labels.shape[1], problem.hidden.element_size()
    if optimizer == "rmsprop":
        floats = 5 * classes * (width + 1) + 3 * k * classes
        return partial(solve_rmsprop, steps=steps, pull=pull), max(1, EXACT_BYTES // (size * floats))
    followed = active_size(k, classes, active)
    if method == "exact" or followed == classes:
        floats = 6 * k * classes  # logits and residuals, and copies of both for queries being watched
        return partial(solve_exact, steps=steps, pull=pull), max(1, EXACT_BYTES // (size * floats))
    floats = followed * (width + 3 * k) + 2 * k * k + 4 * classes
    return partial(solve_active, steps=steps, pull=pull, active=followed), max(
        1, FAST_BYTES // (size * floats)
    )
