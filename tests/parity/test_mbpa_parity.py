from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.solvers.problem import curvature
from hebblm.types import Neighbors, OutputHead

from . import reference
from .problems import as_problem, make_problem

EPS = 1e-3


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Agree to 1e-10 of the largest logit of each query."""
    error = (actual - expected).abs().amax(1) / expected.abs().amax(1)
    assert error.max() <= 1e-10, error


def relative_reference(
    hidden: torch.Tensor, neighbors: Neighbors, head: OutputHead, *, lr: float, steps: int, pull: float
) -> torch.Tensor:
    """Return the plain form at the rate that the solver takes for each query."""
    parts = as_problem(hidden, neighbors, head)
    unit = curvature(parts.keys, parts.weights, parts.one).tolist()
    rows = []
    for row, query in enumerate(hidden):
        rate = lr / unit[row] if unit[row] else 0.0
        own = reference.adapted_head(neighbors, row, head, lr=rate, steps=steps, eps=EPS, pull=pull * unit[row])
        rows.append(own.logits(query))
    return torch.stack(rows)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("lr", [0.003, 0.1, 2.0])
@pytest.mark.parametrize("bias", [True, False])
def test_descent_equals_autograd(steps: int, lr: float, bias: bool) -> None:
    hidden, neighbors, head = make_problem(steps, bias=bias)
    actual = functional.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS, lr_units="absolute")
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("lr", [0.5, 8.0])
@pytest.mark.parametrize("pull", [0.0, 0.03])
@pytest.mark.parametrize("bias", [True, False])
def test_descent_at_a_relative_rate_equals_autograd(steps: int, lr: float, pull: float, bias: bool) -> None:
    hidden, neighbors, head = make_problem(steps, bias=bias)
    options = {"lr": lr, "steps": steps, "pull": pull}
    actual = functional.mbpa_logits(hidden, neighbors, head, eps=EPS, lr_units="relative", **options)
    assert_same(actual, relative_reference(hidden, neighbors, head, **options))
    assert torch.equal(actual[2], head.logits(hidden)[2])  # no neighbours


@pytest.mark.parametrize("pull", [0.0, 0.03])
@pytest.mark.parametrize("keys", ["one", "the same"])
def test_where_the_largest_eigenvalue_is_exact_so_is_the_relative_rate(pull: float, keys: str) -> None:
    hidden, neighbors, head = make_problem(9, n=2, k=1 if keys == "one" else 6)
    same = neighbors.keys[:, :1].expand_as(neighbors.keys).contiguous()
    neighbors = Neighbors(same, neighbors.values, neighbors.distances, neighbors.mask)
    options = {"lr": 3.0, "steps": 4, "eps": EPS, "pull": pull}
    actual = functional.mbpa_logits(hidden, neighbors, head, lr_units="relative", **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, relative=True, **options))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rate", ["absolute", "relative"])
@pytest.mark.parametrize(
    "shape",
    [{"k": 1}, {"k": 12, "labels": 2}, {"labels": 4, "zero_rows": 4}, {"k": 30, "d": 3, "v": 4}],
    ids=["one neighbour", "repeated labels", "labels without a learnt row", "more neighbours than width"],
)
def test_descent_equals_autograd_in_awkward_shapes(steps: int, rate: str, shape: dict[str, int]) -> None:
    hidden, neighbors, head = make_problem(3, **shape)
    lr = 0.05 if rate == "absolute" else 2.0
    actual = functional.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS, lr_units=rate)
    if rate == "absolute":
        expected = reference.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS)
    else:
        expected = relative_reference(hidden, neighbors, head, lr=lr, steps=steps, pull=0.0)
    assert_same(actual, expected)


@pytest.mark.parametrize("steps", [1, 5])
def test_every_key_a_duplicate(steps: int) -> None:
    hidden, neighbors, head = make_problem(4, n=2, k=4)
    same = Neighbors(
        hidden[:, None].expand(2, 4, 6).contiguous(),
        neighbors.values,
        torch.zeros(2, 4, dtype=torch.float64),
        torch.ones(2, 4, dtype=torch.bool),
    )
    actual = functional.mbpa_logits(hidden, same, head, lr=1e-4, steps=steps, eps=EPS, lr_units="absolute")
    assert_same(actual, reference.mbpa_logits(hidden, same, head, lr=1e-4, steps=steps, eps=EPS))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_pull_equals_autograd(steps: int, bias: bool) -> None:
    hidden, neighbors, head = make_problem(5, bias=bias)
    options = {"lr": 0.02, "steps": steps, "eps": EPS, "pull": 0.7}
    actual = functional.mbpa_logits(hidden, neighbors, head, lr_units="absolute", **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, **options))
    if steps > 1:
        free = functional.mbpa_logits(hidden, neighbors, head, lr_units="absolute", **{**options, "pull": 0.0})
        assert not torch.allclose(actual, free)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("lr", [1e-4, 1e-2])
@pytest.mark.parametrize("pull", [0.0, 0.7])
@pytest.mark.parametrize("bias", [True, False])
def test_rmsprop_equals_torch(steps: int, lr: float, pull: float, bias: bool) -> None:
    hidden, neighbors, head = make_problem(6, bias=bias)
    options = {"lr": lr, "steps": steps, "eps": EPS, "optimizer": "rmsprop", "pull": pull}
    actual = functional.mbpa_logits(hidden, neighbors, head, lr_units="absolute", **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, **options))
