"""MbPA: the head adapted to the neighbours of one query, for that query alone."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hebblm.adapt.functional import checks
from hebblm.adapt.functional.closeness import Normalization, closeness
from hebblm.adapt.functional.escalation import MbpaResult, Run, escalate, levels
from hebblm.adapt.functional.guard import guarded_backtracking, guarded_descent
from hebblm.adapt.functional.problem import Problem, Solution, Solver
from hebblm.adapt.functional.widths import marked
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

Method = Literal["exact", "fast"]
Optimizer = Literal["sgd", "rmsprop"]

TOLERANCE = 1e-3  # nats a token that the fast form may cost


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
    tolerance: float = TOLERANCE,
    products: Tensor | None = None,
) -> MbpaResult:
    """Return the change of the logits that :func:`mbpa_logits` adds to ``base_logits`` (N, V).

    The arguments, the equation and what is raised are those of :func:`mbpa_logits`; the base logits, and the
    ``products`` ``h_k . h`` (N, K) where they are known, are given so that several adapters can share them.
    """
    _check(
        neighbors,
        lr=lr,
        steps=steps,
        method=method,
        optimizer=optimizer,
        pull=pull,
        active=active,
        tolerance=tolerance,
    )
    weights = closeness(neighbors.distances, neighbors.mask, eps=eps, normalization=closeness_normalization)
    weights = weights.to(hidden.dtype) / neighbors.mask.sum(1, keepdim=True).clamp_min(1)  # c_k / |N| (N, K)
    problem = Problem(
        head,
        hidden,
        neighbors.keys,
        neighbors.values,
        weights,
        base_logits,
        neighbors.log_normalizers,
        products,
    )
    if lr == 0 or steps == 0:
        return MbpaResult.nothing(base_logits)
    if optimizer == "sgd":
        problem = problem.measured()
    run: Run
    if not guard:
        run = _unguarded
    elif optimizer == "sgd":
        run = partial(guarded_descent, rate=lr, pull=pull)
    else:
        run = guarded_backtracking
    forms = levels(
        problem,
        steps=steps,
        method=method,
        optimizer=optimizer,
        pull=pull,
        active=active,
        tolerance=tolerance,
    )
    if forms[0].kind == "narrow":
        problem = marked(problem, rate=lr, steps=steps, tolerance=tolerance)
    return escalate(problem, forms, run, rate=lr, tolerance=tolerance)


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
    tolerance: float = TOLERANCE,
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
            classes, and more of them or all where its error could exceed the tolerance.
        optimizer: ``sgd`` is plain descent; ``rmsprop`` has a fresh state for each query and is slow.
        pull: rate of the pull back to the base head: ``W <- W + lr gradient - lr pull (W - W_0)``.
        closeness_normalization: ``raw`` c_k, or scaled to ``sum`` 1 or ``max`` 1.
        guard: run a query that diverges (its neighbours' loss rises, or is not finite) at a stable rate.
        active: number of classes that ``fast`` follows, by default 255. All labels among the neighbours are
            always followed.
        tolerance: error of ``fast`` that is accepted, in nats a token: the mean over what the query's base
            distribution expects, estimated without the target; ``math.inf`` accepts any.

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
        tolerance=tolerance,
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
    tolerance: float,
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
    if not tolerance >= 0:
        raise UserError(f"tolerance = {tolerance} is out of range; choose tolerance >= 0, in nats a token")
    if method == "fast" and optimizer == "rmsprop":
        raise UserError("method = 'fast' follows plain descent only; choose method = 'exact' for rmsprop")


def _unguarded(problem: Problem, solve: Solver, rates: Tensor) -> Solution:
    """Run a solver at the given rates, whatever comes of it."""
    return solve(problem, rates, torch.zeros_like(rates, dtype=torch.bool))
