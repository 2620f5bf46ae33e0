from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional

from . import reference
from .problems import make_problem
from .test_mbpa_parity import EPS, assert_same

COUNTS = torch.tensor([0, 1, 2, 3, 5, 8, 13, 100, 10_000, 1, 0, 2, 1])


@pytest.mark.parametrize("beta", [0.0, 0.15, 0.6, 0.999])
@pytest.mark.parametrize("gate", ["gated", "literal"])
@pytest.mark.parametrize("steps", [1, 5])
def test_equals_the_printed_equations(beta: float, gate: str, steps: int) -> None:
    hidden, neighbors, head = make_problem(11, k=9)
    options = {"lr": 0.02, "steps": steps, "eta": 0.4, "beta": beta, "counts": COUNTS, "eps": EPS, "gate": gate}
    actual = functional.hebb_logits(hidden, neighbors, head, rate="absolute", **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, **options))


@pytest.mark.parametrize("gate", ["gated", "literal"])
@pytest.mark.parametrize("bias", [True, False])
def test_only_new_classes(gate: str, bias: bool) -> None:
    hidden, neighbors, head = make_problem(12, k=9, labels=6, zero_rows=3, bias=bias)
    new = torch.arange(13) >= 10
    options = {"lr": 0.02, "steps": 2, "eta": 0.4, "beta": 0.5, "counts": COUNTS, "eps": EPS, "gate": gate}
    actual = functional.hebb_logits(hidden, neighbors, head, hebbian_classes=new, rate="absolute", **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, hebbian_classes=new, **options))
    everywhere = functional.hebb_logits(hidden, neighbors, head, rate="absolute", **options)
    assert not torch.allclose(actual, everywhere)


@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0])
def test_constant_weight(constant: float) -> None:
    hidden, neighbors, head = make_problem(13)
    options = {"lr": 0.02, "steps": 2, "eta": 0.4, "beta": 0.5, "counts": COUNTS, "eps": EPS}
    actual = functional.hebb_logits(hidden, neighbors, head, weighting=constant, rate="absolute", **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, constant=constant, **options))


def test_hebbian_term_alone() -> None:
    hidden, neighbors, head = make_problem(14)
    options = {"lr": 0.02, "steps": 2, "eta": 0.4, "beta": 0.5, "counts": COUNTS, "eps": EPS}
    actual = functional.hebb_logits(hidden, neighbors, head, mbpa=False, **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, mbpa=False, **options))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("normalization", ["raw", "sum", "max"])
def test_a_relative_term_written_out(normalization: str, bias: bool) -> None:
    hidden, neighbors, head = make_problem(16, k=9, labels=6, bias=bias)
    new, eps, eta = torch.arange(13) >= 9, 0.01, 2.5
    actual = functional.hebb_logits(
        hidden, neighbors, head, lr=0.02, steps=2, eta=eta, beta=0.5, counts=COUNTS, eps=eps, hebbian_classes=new,
        mbpa=False, closeness_normalization=normalization, scale="relative",
    )  # fmt: skip
    for row, query in enumerate(hidden):
        keys, labels, distances = reference.entries_of(neighbors, row)
        logits = head.logits(query)
        if len(labels):
            closeness = 1 / (eps + distances / distances.mean())
            wholes = {"raw": 1.0, "sum": closeness.sum(), "max": closeness.max()}
            lifts = (keys @ query + bias) / (query @ query + bias)
            for label in labels[new[labels]].unique():
                mine = labels == label
                logits[label] += eta * (closeness[mine] / wholes[normalization] * lifts[mine]).mean()
        assert_same(actual[row : row + 1], logits[None])


def test_rmsprop() -> None:
    hidden, neighbors, head = make_problem(15)
    options = {"lr": 1e-3, "steps": 2, "eta": 0.4, "beta": 0.5, "counts": COUNTS, "eps": EPS}
    actual = functional.hebb_logits(hidden, neighbors, head, optimizer="rmsprop", rate="absolute", **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, optimizer="rmsprop", **options))
