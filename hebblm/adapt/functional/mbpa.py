"""MbPA: the head adapted to the neighbours of one query, for that query alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import LrUnits, Scale
from hebblm.adapt.functional.changes import CompactChange, joined
from hebblm.adapt.functional.grouping import group_ids
from hebblm.adapt.functional.rows import row_stats
from hebblm.adapt.functional.scales import KernelNormalization, kernel_weight
from hebblm.adapt.solvers import compiled
from hebblm.adapt.solvers.exact import solve_exact
from hebblm.adapt.solvers.fast import active_sizes, narrow, solve_fast
from hebblm.adapt.solvers.newton import solve_newton
from hebblm.adapt.solvers.problem import Descent, Problem, Solution, key_products
from hebblm.adapt.solvers.rmsprop import solve_rmsprop
from hebblm.errors import UserError
from hebblm.memory.base import squared
from hebblm.memory.found import Found
from hebblm.runtime.blocks import blocks, in_parallel
from hebblm.types import Neighbors, OutputHead

Solver = Literal["exact", "fast"]
Optimizer = Literal["newton", "sgd", "rmsprop"]


@dataclass(frozen=True, slots=True)
class MbpaResult:
    """Change of the base logits by adaptation.

    Args:
        change: of the logits, (N, V) in nats or compact; zero for a query without neighbours.
        loss_increased: (N,) bool, queries whose neighbours' loss rose at the given rate.
        retried: (N,) bool, queries among them that were run again at a stable rate.
    """

    change: Tensor | CompactChange
    loss_increased: Tensor
    retried: Tensor

    @property
    def delta(self) -> Tensor:
        """(N, V) the change of all logits, nats."""
        return self.change.dense() if isinstance(self.change, CompactChange) else self.change


@torch.no_grad()
def mbpa_delta(  # noqa: PLR0913 - the parameters of Eq. 5, by name
    hidden: Tensor,
    neighbors: Neighbors | Found,
    head: OutputHead,
    base_logits: Tensor,
    *,
    lr: float,
    steps: int,
    eps: float,
    lr_units: LrUnits = "guarded",
    solver: Solver = "exact",
    optimizer: Optimizer = "sgd",
    l2_to_base: float = 0.0,
    kernel_normalization: KernelNormalization = "raw",
    scale: Scale = "absolute",
    products: Tensor | None = None,
    groups: Tensor | None = None,
    normalizers: Tensor | None = None,
    signed_sqrt: bool = False,
) -> MbpaResult:
    """Return the change of the logits that :func:`mbpa_logits` adds to ``base_logits`` (N, V).

    Equation, arguments and errors are those of :func:`mbpa_logits`. Several adapters can share the
    base logits, their logsumexp ``normalizers`` (N,), the ``products`` ``h_k . h`` (N, K) and the
    labels' ``groups`` (N, K), see :func:`hebblm.adapt.functional.grouping.group_ids`. The keys of
    ``neighbors`` that a search found are read from the memory, a few queries at a time.
    ``signed_sqrt`` keys are square roots of states.
    """
    checks.precise(head.weight)
    checks.some_neighbors(neighbors.values)
    solve = _solver(
        lr=lr,
        steps=steps,
        lr_units=lr_units,
        solver=solver,
        optimizer=optimizer,
        l2_to_base=l2_to_base,
    )
    weights = kernel_weight(
        neighbors.distances,
        neighbors.mask,
        eps=eps,
        normalization=kernel_normalization,
        scale=scale,
    )
    # c_k / |N| (N, K)
    weights = weights.to(hidden.dtype) / neighbors.mask.sum(1, keepdim=True).clamp_min(1)
    rises = torch.zeros_like(neighbors.mask[:, 0])
    if steps == 0 or (lr == 0 and optimizer != "newton") or not len(hidden):
        return MbpaResult(torch.zeros_like(base_logits), rises, rises.clone())
    newton = optimizer == "newton" and solver == "fast"
    if newton and compiled.applies(hidden, neighbors, head, base_logits):
        known = row_stats(base_logits).normalizer if normalizers is None else normalizers
        change, rises = compiled.solve(
            hidden, neighbors, head, base_logits, known, weights,
            signed_sqrt=signed_sqrt, l2_to_base=l2_to_base, steps=steps,
        )  # fmt: skip
        return MbpaResult(change, rises, torch.zeros_like(rises))
    solutions: list[tuple[Tensor, Solution]] = []

    def fill(rows: Tensor) -> None:
        keys = _keys(neighbors, rows, hidden.dtype)
        keys = squared(keys) if signed_sqrt else keys
        solution = solve(
            _problem(
                hidden, keys, neighbors, head, base_logits, weights, products, normalizers, rows
            )
        )
        rises[rows] = solution.loss_increased
        solutions.append((rows, solution))

    parts = list(_parts(hidden, neighbors, head, weights, groups, solver, optimizer))
    if solver == "fast":
        in_parallel(fill, parts, hidden.device)
    else:
        # A query may take gigabytes where all classes are followed: one at a time, by all threads.
        for rows in parts:
            fill(rows)
    retried = rises.clone() if lr_units == "guarded" else torch.zeros_like(rises)
    return MbpaResult(_change(base_logits, normalizers, solutions), rises, retried)


def _keys(neighbors: Neighbors | Found, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the keys (n, K, D) of some queries, (n,) int64."""
    if isinstance(neighbors, Neighbors):
        return neighbors.keys[rows].to(dtype)
    return neighbors.keys(rows, dtype)


def _change(
    base_logits: Tensor, normalizers: Tensor | None, solutions: Sequence[tuple[Tensor, Solution]]
) -> Tensor | CompactChange:
    """Return the change of all queries from those of parts of them."""
    compact = [
        (rows, solution.change)
        for rows, solution in solutions
        if isinstance(solution.change, CompactChange)
    ]
    if len(compact) == len(solutions):
        known = base_logits.logsumexp(1) if normalizers is None else normalizers
        return joined(base_logits, known, compact)
    change = torch.zeros_like(base_logits)
    for rows, solution in solutions:
        part = solution.change
        change[rows] = part.dense() if isinstance(part, CompactChange) else part
    return change


def mbpa_logits(  # noqa: PLR0913 - the parameters of Eq. 5, by name
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eps: float,
    lr_units: LrUnits = "guarded",
    solver: Solver = "exact",
    optimizer: Optimizer = "sgd",
    l2_to_base: float = 0.0,
    kernel_normalization: KernelNormalization = "raw",
    scale: Scale = "absolute",
) -> Tensor:
    """Return each query's logits after memory-based parameter adaptation (Eq. 5, Sprechmann et al.
    2018).

    Starting from the base head, ``steps`` steps of the optimizer maximise ``1/|N| sum_k c_k log
    P(y_k | h_k)`` over (W, b) for one query; the change is thrown away afterwards. The rate of a
    step of ``sgd`` is ``lr``, or, relative to the curvature of the query's own problem, ``lr /
    lambda_max(A^1/2 (H H^T + 1) A^1/2)`` with ``A = diag(c_k / |N|)``. The relative rate does not
    depend on the units of the model or the scale of c_k, and the loss cannot rise for lr <= 4.

    Args:
        hidden: (N, D) queries.
        neighbors: their neighbours; |N| is the number of real entries of a query.
        head: weight (V, D) and bias (V,) or None.
        lr: learning rate, at least 0: lambda, or in units of ``1 / lambda_max`` if it is relative.
        steps: number of steps, at least 0.
        eps: the constant in c_k, above 0.
        lr_units: ``relative`` to curvature, ``absolute``, or ``guarded``: absolute, and a query
            whose neighbours' loss rises, or is not finite, is run again at a stable rate.
        solver: ``exact`` agrees with automatic differentiation up to rounding; ``fast`` follows a
            few hundred classes, and all of a small vocabulary.
        optimizer: ``newton`` goes to the optimum with a pull and has no rate, see
            :func:`solve_newton`; ``sgd`` is plain descent; ``rmsprop`` has a fresh state for each
            query and is slow.
        l2_to_base: pull back to the base head. A step of descent takes ``lr l2_to_base`` of the
            change back, in the unit of the rate. For newton it is above 0, in units of
            ``(lambda_max (trace - lambda_max))^1/2``.
        kernel_normalization: ``raw`` c_k, or scaled to ``sum`` 1 or ``max`` 1.
        scale: of distances and eps in c_k, see :func:`kernel_weight`.

    Returns:
        (N, V) logits; the base logits for a query without neighbours.

    Raises:
        UserError: a value out of range, an unknown word, a head of half precision, K = 0, or
            ``fast`` or ``relative`` together with ``rmsprop``.
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
        lr_units=lr_units,
        solver=solver,
        optimizer=optimizer,
        l2_to_base=l2_to_base,
        kernel_normalization=kernel_normalization,
        scale=scale,
    )
    return base_logits + result.delta


def _parts(
    hidden: Tensor,
    neighbors: Neighbors | Found,
    head: OutputHead,
    weights: Tensor,
    groups: Tensor | None,
    solver: Solver,
    optimizer: Optimizer,
) -> Iterator[Tensor]:
    """Yield a few queries (n,) of one size at a time, so that their tensors stay in the caches."""
    (classes, width), k = head.weight.shape, weights.shape[1]
    followed = torch.full_like(neighbors.values[:, 0], classes)
    if solver == "fast":
        groups = group_ids(neighbors.values) if groups is None else groups
        followed = active_sizes(groups, weights > 0).clamp_max(classes)
    for size in sorted(set(followed.tolist())):
        alike = (followed == size).nonzero().squeeze(1)
        # that a query takes
        floats = k * width + size * (width + 3 * k) if solver == "fast" else 6 * k * classes
        if optimizer == "rmsprop":
            floats = 5 * classes * (width + 1) + 3 * k * classes
        for block in blocks(hidden.element_size() * floats, len(alike), hidden.device):
            yield alike[block]


def _problem(  # noqa: PLR0913 - the fields of a problem, for some rows
    hidden: Tensor,
    keys: Tensor,
    neighbors: Neighbors | Found,
    head: OutputHead,
    base_logits: Tensor,
    weights: Tensor,
    products: Tensor | None,
    normalizers: Tensor | None,
    rows: Tensor,
) -> Problem:
    """Return the problem of some of the queries, (n,) int64."""
    logs = neighbors.log_normalizers
    return Problem(
        head,
        hidden[rows],
        keys,
        neighbors.values[rows],
        weights[rows],
        base_logits[rows],
        None if logs is None else logs[rows],
        key_products(hidden[rows], keys) if products is None else products[rows],
        None if normalizers is None else normalizers[rows],
    )


def _solver(
    *,
    lr: float,
    steps: int,
    lr_units: LrUnits,
    solver: Solver,
    optimizer: Optimizer,
    l2_to_base: float,
) -> Callable[[Problem], Solution]:
    """Return the solver of a few queries for these options; UserError for a value outside the
    equations' range.
    """
    checks.at_least("lr", lr, 0)
    checks.at_least("steps", steps, 0)
    checks.one_of("lr_units", lr_units, get_args(LrUnits))
    checks.one_of("solver", solver, get_args(Solver))
    checks.one_of("optimizer", optimizer, get_args(Optimizer))
    if optimizer == "newton":
        checks.above_zero("l2_to_base", l2_to_base)
        return partial(solve_newton, steps=steps, l2_to_base=l2_to_base, exact=solver == "exact")
    checks.at_least("l2_to_base", l2_to_base, 0)
    if optimizer == "rmsprop":
        if solver == "fast":
            raise UserError("solver = 'fast' cannot use rmsprop; choose solver = 'exact'")
        if lr_units == "relative":
            raise UserError(
                "lr_units = 'relative' does not work with rmsprop; choose lr_units = 'guarded' or "
                "'absolute'"
            )
        return partial(
            solve_rmsprop, lr=lr, steps=steps, l2_to_base=l2_to_base, guarded=lr_units == "guarded"
        )

    def descend(problem: Problem) -> Solution:
        follow = solve_exact if solver == "exact" or narrow(problem) else solve_fast
        solution = follow(problem, Descent.at(problem, lr, steps, l2_to_base, lr_units))
        # those queries once more, at a rate that cannot climb
        if lr_units == "guarded" and bool(solution.loss_increased.any()):
            part = problem.rows(solution.loss_increased)
            solution.put(
                solution.loss_increased, follow(part, Descent.stable(part, lr, steps, l2_to_base))
            )
        return solution

    return descend
