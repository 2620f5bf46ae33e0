"""From the fast form to the exact one: each query by the cheapest form that keeps to the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hebblm.adapt.functional.active_set import solve_active
from hebblm.adapt.functional.descent import solve_exact
from hebblm.adapt.functional.problem import Problem, Solution, Solver
from hebblm.adapt.functional.rmsprop import solve_rmsprop
from hebblm.adapt.functional.widths import NARROW, active_size

WIDER = (4, 16)  # times as many classes are followed where the first set is too small, one after the other
BYTES = 256 * 2**20  # working memory of one chunk of queries

Kind = Literal["narrow", "fast", "wide", "exact"]
Run = Callable[[Problem, Solver, Tensor], Solution]


@dataclass(frozen=True, slots=True)
class Level:
    """One form of the descent.

    Args:
        kind: which; ``narrow`` is ``fast`` with fewer classes for the queries that are marked so.
        solve: follows it.
        chunk: queries at a time.
    """

    kind: Kind
    solve: Solver
    chunk: int


@dataclass(frozen=True, slots=True)
class MbpaResult:
    """What adaptation adds to the base logits, and what it took.

    Args:
        delta: (N, V) change of the logits; zero for a query without neighbours.
        stabilized: (N,) bool, queries that diverged at the given rate and were run at a smaller one.
        widened: (N,) bool, queries whose result is that of the fast form on a wider active set.
        exact_fallbacks: (N,) bool, queries of the fast form that were run in the exact one.
    """

    delta: Tensor
    stabilized: Tensor
    widened: Tensor
    exact_fallbacks: Tensor

    @classmethod
    def nothing(cls, base_logits: Tensor) -> MbpaResult:
        """Return no change of ``base_logits`` (N, V)."""
        none = torch.zeros(base_logits.shape[0], dtype=torch.bool, device=base_logits.device)
        return cls(torch.zeros_like(base_logits), none, none.clone(), none.clone())

    @classmethod
    def unfilled(cls, base_logits: Tensor) -> MbpaResult:
        """Return a change of ``base_logits`` (N, V) yet to be written."""
        none = torch.zeros(base_logits.shape[0], dtype=torch.bool, device=base_logits.device)
        return cls(torch.empty_like(base_logits), none, none.clone(), none.clone())


def levels(
    problem: Problem,
    *,
    steps: int,
    method: str,
    optimizer: str,
    pull: float,
    active: int | None,
    tolerance: float,
) -> list[Level]:
    """Return the forms to try one after the other; ``fast`` has no more of them than the vocabulary allows."""
    classes, width = problem.head.weight.shape
    k, size = problem.labels.shape[1], problem.hidden.element_size()
    if optimizer == "rmsprop":
        floats = 5 * classes * (width + 1) + 3 * k * classes
        return [Level("exact", partial(solve_rmsprop, steps=steps, pull=pull), _fit(size * floats))]
    result: list[Level] = []
    if method == "fast":
        full = active_size(k, classes, active)
        wider: list[tuple[Kind, int]] = [
            ("wide", active_size(k, classes, times * (full + 1) - 1)) for times in WIDER
        ]
        sizes: list[tuple[Kind, int]] = [("narrow", full), ("fast", full), *wider]
        for kind, followed in sizes:
            # Whether the narrow set serves is told from stored normalisers, and only where no number was asked for.
            narrow = kind == "narrow"
            if narrow and (active is not None or problem.log_normalizers is None or full <= NARROW):
                continue
            if followed < classes:
                solve = partial(
                    solve_active, steps=steps, pull=pull, active=followed, tolerance=tolerance, narrow=narrow
                )
                sampled = (
                    0 if problem.log_normalizers is not None else followed * (width + 2 * k) + 3 * classes
                )
                floats = followed * (width + 3 * k) + 2 * k * k + 4 * classes + sampled
                result.append(Level(kind, solve, _fit(size * floats)))
    floats = 6 * k * classes  # logits and residuals, and copies of both for queries being watched
    return [
        *result,
        Level("exact", partial(solve_exact, steps=steps, pull=pull), _fit(size * floats)),
    ]


def escalate(
    problem: Problem,
    forms: Sequence[Level],
    run: Run,
    *,
    rate: float,
    tolerance: float,
) -> MbpaResult:
    """Solve every query, and again in the next form where the last one's error may exceed the tolerance.

    What is done for a query depends on it alone, never on its target. A query that diverged goes on at the rate it
    was found to bear, except in the exact form, which judges for itself.

    Args:
        problem: the queries and their neighbours.
        forms: the cheapest first; the last one is not judged.
        run: follows a solver from given rates (n,), guarded or not.
        rate: learning rate asked for.
        tolerance: nats a token.
    """
    count = problem.hidden.shape[0]
    turn = torch.zeros(count, dtype=torch.int64, device=problem.hidden.device)  # (n,) index of a form
    result = MbpaResult.unfilled(problem.scores)
    rates = torch.full_like(problem.weights[:, 0], rate)  # (n,)
    for index, form in enumerate(forms):
        pending = (turn == index).nonzero().squeeze(1)
        if form.kind == "exact":
            rates[pending] = rate
        for start in range(0, len(pending), form.chunk):
            part = slice(start, start + form.chunk)
            rows = part if len(pending) == count else pending[part]  # a slice copies no keys
            found = run(problem.rows(rows), form.solve, rates[rows])
            result.delta[rows], rates[rows] = found.delta, found.rates
            stayed = result.stabilized[rows] & (form.kind != "exact")
            result.stabilized[rows] = stayed | found.rose
            failed = ~(found.error <= tolerance)
            turn[rows] += failed
            if form.kind == "narrow" and problem.narrow is not None:
                turn[rows] += failed & ~problem.narrow[rows]  # these were followed as the next form would
        if form is forms[-1]:
            result.exact_fallbacks[pending] = index > 0
        else:
            result.widened[pending[turn[pending] == index]] = form.kind == "wide"
    return result


def _fit(bytes_each: int) -> int:
    """Return how many queries of so many bytes make a chunk, at least one."""
    return max(1, BYTES // bytes_each)
