"""MbPA by Newton steps beside the optimum that automatic differentiation finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.solvers import fast
from hebblm.adapt.solvers.newton import _other_curvatures, solve_newton
from hebblm.adapt.solvers.problem import Problem, relative_weights
from hebblm.types import Neighbors, OutputHead

from .problems import as_problem, language_like, make_problem


def differing(problem: Problem, row: int) -> torch.Tensor:
    """Return the sum of a query's curvatures but the largest, in units of that, from the
    eigenvalues.
    """
    roots = relative_weights(problem)[row].sqrt()
    gram = problem.keys[row] @ problem.keys[row].t() + problem.one
    curvatures = torch.linalg.eigvalsh(roots[:, None] * gram * roots)
    return (curvatures.sum() - 1).clamp_min(0.01)


def optimum(problem: Problem, row: int, l2_to_base: float) -> torch.Tensor:
    """Return the change of a query's logits (V,) at the minimum of the pulled loss, over a head of
    its own.
    """
    weight, bias = problem.head.weight, problem.head.bias
    dw = torch.zeros_like(weight, requires_grad=True)
    db = torch.zeros(len(weight), dtype=weight.dtype, requires_grad=bias is not None)
    free = [dw] if bias is None else [dw, db]
    sizes = relative_weights(problem)[row]
    l2_to_base = l2_to_base * float(differing(problem, row)) ** 0.5
    descent = torch.optim.LBFGS(
        free,
        max_iter=2000,
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        descent.zero_grad()
        logits = problem.head.logits(problem.keys[row]) + problem.keys[row] @ dw.t() + db
        losses = torch.nn.functional.cross_entropy(logits, problem.labels[row], reduction="none")
        value = (sizes * losses).sum() + l2_to_base / 2 * sum(part.square().sum() for part in free)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    descent.step(loss)  # type: ignore[arg-type]
    return (problem.hidden[row] @ dw.t() + db).detach()


@pytest.mark.parametrize(("l2_to_base", "bias", "classes"), [(0.02, True, 13), (0.1, False, 4)])
def test_many_steps_reach_the_optimum(l2_to_base: float, bias: bool, classes: int) -> None:
    problem = as_problem(*make_problem(5, k=9, v=classes, bias=bias), eps=1.0)
    found = solve_newton(problem, steps=6000, l2_to_base=l2_to_base, exact=True)
    for row in range(5):
        torch.testing.assert_close(
            found.delta[row], optimum(problem, row, l2_to_base), rtol=0, atol=1e-6
        )
    assert (found.delta[2] == 0).all()  # no neighbours
    assert not found.loss_increased.any()


@pytest.mark.parametrize("bias", [True, False])
def test_other_curvatures_are_those_of_the_eigenvalues(bias: bool) -> None:
    problem = as_problem(*make_problem(5, k=9, bias=bias), eps=1.0)
    found = _other_curvatures(problem, relative_weights(problem))
    torch.testing.assert_close(found, torch.stack([differing(problem, row) for row in range(5)]))
    twins = replace(problem, keys=problem.keys[:, :1].expand_as(problem.keys))
    torch.testing.assert_close(
        _other_curvatures(twins, relative_weights(twins)), torch.full_like(found, 0.01)
    )


def test_three_steps_come_near_the_optimum() -> None:
    problem = as_problem(*language_like(33, n=6, k=60, d=40, v=300), eps=3e-3)
    base = problem.base_logits.log_softmax(1)
    found = solve_newton(problem, steps=3, l2_to_base=0.005, exact=True)
    best = torch.stack([optimum(problem, row, 0.005) for row in range(6)])
    wanted = (problem.base_logits + best).log_softmax(1)

    def distance(log_probs: torch.Tensor) -> float:
        return float((wanted.exp() * (log_probs - wanted).abs()).sum(1).mean())

    assert distance((problem.base_logits + found.delta).log_softmax(1)) < 0.1 * distance(base)
    assert not found.loss_increased.any()


@pytest.mark.parametrize(
    ("stored", "bias", "steps"), [(True, True, 1), (True, False, 4), (False, True, 4)]
)
def test_fast_equals_exact_where_all_classes_and_directions_are_followed(
    stored: bool, bias: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "RIDGE", 1e-13)  # 1e-5 of a direction's length else
    monkeypatch.setattr(fast, "narrow", lambda problem: False)
    hidden, neighbors, head = make_problem(31, k=9, d=12, v=95, labels=4, bias=bias)
    problem = as_problem(hidden, neighbors, head, eps=1.0)
    if not stored:
        problem = replace(problem, log_normalizers=None)
    found, exact = (
        solve_newton(problem, steps=steps, l2_to_base=0.01, exact=exact) for exact in (False, True)
    )
    torch.testing.assert_close(found.delta, exact.delta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("stored", "classes"), [(True, 2000), (False, 300)])
def test_fast_is_near_exact_on_language_like_states(stored: bool, classes: int) -> None:
    hidden, neighbors, head = language_like(33, n=24, k=60, d=40, v=classes)
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    options = {
        "optimizer": "newton",
        "lr": 1.0,
        "steps": 3,
        "l2_to_base": 0.005,
        "eps": 3e-3,
        "scale": "relative",
    }
    exact = functional.mbpa_logits(hidden, neighbors, head, **options).log_softmax(1)
    found = functional.mbpa_logits(hidden, neighbors, head, solver="fast", **options).log_softmax(1)
    base = head.logits(hidden).log_softmax(1)
    expected = (exact.exp() * (found - exact).abs()).sum(1).mean()
    moved = (exact.exp() * (exact - base).abs()).sum(1).mean()
    assert expected < 0.1 * moved


def moved(first: torch.Tensor, second: torch.Tensor, problem: Problem) -> float:
    """Return the largest mean difference of log-probabilities of a query, nats."""
    before, after = (
        (problem.base_logits.double() + change).log_softmax(1) for change in (first, second)
    )
    return float((before.exp() * (before - after).abs()).sum(1).max())


def in_float32(hidden: torch.Tensor, near: Neighbors, head: OutputHead) -> Problem:
    """Return a problem whose logits and normalisers are as float32 has them."""
    assert head.bias is not None
    single = OutputHead(head.weight.float(), head.bias.float())
    keys = near.keys.float()
    logs = single.logits(keys).logsumexp(2)
    known = Neighbors(keys, near.values, near.distances.float(), near.mask, logs)
    return as_problem(hidden.float(), known, single, eps=3e-3)


def solved(problem: Problem, *, exact: bool = False) -> torch.Tensor:
    return solve_newton(problem, steps=3, l2_to_base=0.0035, exact=exact).delta


@pytest.mark.parametrize("exact", [False, True])
def test_labels_that_the_base_holds_for_impossible_move_in_float32_as_in_float64(
    exact: bool,
) -> None:
    hidden, near, head = language_like(33, n=8, k=60, d=40, v=600)
    assert head.bias is not None
    head.bias[-100:] -= 30  # probabilities near 1e-15, below the rounding of any other share
    near = replace(near, values=near.values.where(near.values % 3 > 0, 599 - near.values % 7))
    near = replace(near, log_normalizers=head.logits(near.keys).logsumexp(2))
    wide, narrow = as_problem(hidden, near, head, eps=3e-3), in_float32(hidden, near, head)
    assert solved(wide, exact=exact)[:, -7:].amax() > 15
    assert moved(solved(wide, exact=exact), solved(narrow, exact=exact), wide) < 1e-4


def test_rounding_of_states_that_are_nearly_parallel_is_not_enlarged() -> None:
    hidden, near, head = language_like(33, n=8, k=60, d=40, v=600)
    mean = 4 * torch.ones(40, dtype=torch.float64)
    hidden, keys = mean + 0.3 * hidden, mean + 0.3 * near.keys
    near = replace(near, keys=keys, log_normalizers=head.logits(keys).logsumexp(2))
    wide, narrow = as_problem(hidden, near, head, eps=3e-3), in_float32(hidden, near, head)
    assert moved(solved(wide), torch.zeros_like(wide.base_logits), wide) > 0.1
    assert moved(solved(wide), solved(narrow), wide) < 1e-4
