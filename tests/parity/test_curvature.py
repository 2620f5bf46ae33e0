"""The largest eigenvalue that a relative rate is measured by."""

from __future__ import annotations

import pytest
import torch

from hebblm.adapt.solvers.problem import Problem, curvature

from .problems import as_problem, language_like, make_problem


def estimated(problem: Problem) -> torch.Tensor:
    return curvature(problem.keys, problem.weights, problem.one)


def largest(problem: Problem) -> torch.Tensor:
    root = problem.weights.sqrt()
    gram = problem.keys @ problem.keys.transpose(1, 2) + problem.one
    return torch.linalg.eigvalsh(root[:, :, None] * gram * root[:, None]).amax(1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eps", [1e-6, 1e-3, 10.0])
def test_near_the_largest_eigenvalue_of_language_like_states_and_never_above(
    bias: bool, eps: float
) -> None:
    hidden, neighbors, head = language_like(1, n=40, k=60, d=40, v=50)
    problem = as_problem(hidden, neighbors, head if bias else type(head)(head.weight, None), eps)
    found, expected = estimated(problem), largest(problem)
    assert (found <= expected * (1 + 1e-12)).all()
    assert (found >= expected * (1 - 1e-3)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_it_where_neighbours_only_surround_a_query(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(40, 1, 30, generator=generator, dtype=torch.float64)
    keys = hidden + torch.randn(40, 50, 30, generator=generator, dtype=torch.float64)
    weights = 1 / (1e-3 + (keys - hidden).square().sum(2))
    found = curvature(keys.to(dtype), weights.to(dtype), 1.0).double()
    root = weights.sqrt()
    expected = torch.linalg.eigvalsh(
        root[:, :, None] * (keys @ keys.transpose(1, 2) + 1) * root[:, None]
    ).amax(1)
    assert (found <= expected * (1 + 16 * torch.finfo(dtype).eps)).all()
    assert (found >= expected * (1 - 2e-2)).all()


def test_zero_without_entries_and_never_above_in_awkward_problems() -> None:
    problem = as_problem(*make_problem(3, k=9))
    found, expected = estimated(problem), largest(problem)
    assert found[2] == 0
    assert (found <= expected * (1 + 1e-12)).all()
    torch.testing.assert_close(found[1], expected[1])  # a single entry


def test_follows_the_scale_of_weights_and_keys() -> None:
    problem = as_problem(*make_problem(4, k=9, bias=False))
    found = estimated(problem)
    for factor in (1e-30, 1e-3, 1e6, 1e30):
        torch.testing.assert_close(
            curvature(problem.keys, factor * problem.weights, 0.0), factor * found
        )
        torch.testing.assert_close(
            curvature(factor * problem.keys, problem.weights, 0.0), factor**2 * found
        )
