from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional
from hebblm.types import Neighbors

from . import reference
from .problems import make_problem

EPS = 1e-3


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Agree to 1e-10 of the largest logit of each query."""
    error = (actual - expected).abs().amax(1) / expected.abs().amax(1)
    assert error.max() <= 1e-10, error


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("lr", [0.003, 0.1, 2.0])
@pytest.mark.parametrize("bias", [True, False])
def test_descent_equals_autograd(steps: int, lr: float, bias: bool) -> None:
    hidden, neighbors, head = make_problem(steps, bias=bias)
    actual = functional.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS, guard=False)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    "shape",
    [{"k": 1}, {"k": 12, "labels": 2}, {"labels": 4, "zero_rows": 4}, {"k": 30, "d": 3, "v": 4}],
    ids=["one neighbour", "repeated labels", "labels without a learnt row", "more neighbours than width"],
)
def test_descent_equals_autograd_in_awkward_shapes(steps: int, shape: dict[str, int]) -> None:
    hidden, neighbors, head = make_problem(3, **shape)
    actual = functional.mbpa_logits(hidden, neighbors, head, lr=0.05, steps=steps, eps=EPS, guard=False)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, lr=0.05, steps=steps, eps=EPS))


@pytest.mark.parametrize("steps", [1, 5])
def test_every_key_a_duplicate(steps: int) -> None:
    hidden, neighbors, head = make_problem(4, n=2, k=4)
    same = Neighbors(
        hidden[:, None].expand(2, 4, 6).contiguous(),
        neighbors.values,
        torch.zeros(2, 4, dtype=torch.float64),
        torch.ones(2, 4, dtype=torch.bool),
    )
    actual = functional.mbpa_logits(hidden, same, head, lr=1e-4, steps=steps, eps=EPS, guard=False)
    assert_same(actual, reference.mbpa_logits(hidden, same, head, lr=1e-4, steps=steps, eps=EPS))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_pull_equals_autograd(steps: int, bias: bool) -> None:
    hidden, neighbors, head = make_problem(5, bias=bias)
    options = {"lr": 0.02, "steps": steps, "eps": EPS, "pull": 0.7}
    actual = functional.mbpa_logits(hidden, neighbors, head, guard=False, **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, **options))
    if steps > 1:
        free = functional.mbpa_logits(hidden, neighbors, head, guard=False, **{**options, "pull": 0.0})
        assert not torch.allclose(actual, free)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("lr", [1e-4, 1e-2])
@pytest.mark.parametrize("pull", [0.0, 0.7])
@pytest.mark.parametrize("bias", [True, False])
def test_rmsprop_equals_torch(steps: int, lr: float, pull: float, bias: bool) -> None:
    hidden, neighbors, head = make_problem(6, bias=bias)
    options = {"lr": lr, "steps": steps, "eps": EPS, "optimizer": "rmsprop", "pull": pull}
    actual = functional.mbpa_logits(hidden, neighbors, head, guard=False, **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, **options))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, neighbors, head = make_problem(7, n=9)
    whole = functional.mbpa_logits(hidden, neighbors, head, lr=0.1, steps=3, eps=EPS)
    monkeypatch.setattr("hebblm.adapt.functional.escalation.BYTES", 1)
    assert torch.allclose(
        functional.mbpa_logits(hidden, neighbors, head, lr=0.1, steps=3, eps=EPS), whole, rtol=1e-12
    )
