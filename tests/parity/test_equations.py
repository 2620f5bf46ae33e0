"""MbPA, Hebb and the mixtures equal the equations as printed, one query at a time."""

from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.solvers.problem import curvature
from hebblm.types import Neighbors, OutputHead

from ..support import equations
from . import reference
from .problems import as_problem, make_problem

EPS = 1e-3
SCALES = ["relative", "absolute"]


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Agree to 1e-10 of the largest logit of each query."""
    error = (actual - expected).abs().amax(1) / expected.abs().amax(1)
    assert error.max() <= 1e-10, error


def relative_reference(
    hidden: torch.Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    l2_to_base: float,
) -> torch.Tensor:
    """Return the plain form at the rate that the solver takes for each query."""
    parts = as_problem(hidden, neighbors, head)
    unit = curvature(parts.keys, parts.weights, parts.one).tolist()
    rows = []
    for row, query in enumerate(hidden):
        rate = lr / unit[row] if unit[row] else 0.0
        own = reference.adapted_head(
            neighbors, row, head, lr=rate, steps=steps, eps=EPS, l2_to_base=l2_to_base * unit[row]
        )
        rows.append(own.logits(query))
    return torch.stack(rows)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.003, "steps": 1},
        {"lr": 0.1, "steps": 2},
        {"lr": 2.0, "steps": 5},
        {"lr": 0.02, "steps": 1, "l2_to_base": 0.7},
        {"lr": 0.02, "steps": 5, "l2_to_base": 0.7},
        {"lr": 1e-2, "steps": 1, "optimizer": "rmsprop"},
        {"lr": 1e-4, "steps": 5, "optimizer": "rmsprop", "l2_to_base": 0.7},
    ],
)
def test_mbpa_equals_autograd(options: dict[str, object], bias: bool) -> None:
    hidden, neighbors, head = make_problem(5, bias=bias)
    actual = functional.mbpa_logits(
        hidden, neighbors, head, eps=EPS, lr_units="absolute", **options
    )
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, eps=EPS, **options))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("steps", "lr", "l2_to_base"), [(1, 8.0, 0.03), (5, 0.5, 0.03), (5, 8.0, 0.0)]
)
def test_descent_at_a_relative_rate_equals_autograd(
    steps: int, lr: float, l2_to_base: float, bias: bool
) -> None:
    hidden, neighbors, head = make_problem(steps, bias=bias)
    options = {"lr": lr, "steps": steps, "l2_to_base": l2_to_base}
    actual = functional.mbpa_logits(
        hidden, neighbors, head, eps=EPS, lr_units="relative", **options
    )
    assert_same(actual, relative_reference(hidden, neighbors, head, **options))
    assert torch.equal(actual[2], head.logits(hidden)[2])  # no neighbours


@pytest.mark.parametrize("l2_to_base", [0.0, 0.03])
@pytest.mark.parametrize("keys", ["one", "the same"])
def test_where_the_largest_eigenvalue_is_exact_so_is_the_relative_rate(
    l2_to_base: float, keys: str
) -> None:
    hidden, neighbors, head = make_problem(9, n=2, k=1 if keys == "one" else 6)
    same = neighbors.keys[:, :1].expand_as(neighbors.keys).contiguous()
    neighbors = Neighbors(same, neighbors.values, neighbors.distances, neighbors.mask)
    options = {"lr": 3.0, "steps": 4, "eps": EPS, "l2_to_base": l2_to_base}
    actual = functional.mbpa_logits(hidden, neighbors, head, lr_units="relative", **options)
    assert_same(actual, reference.mbpa_logits(hidden, neighbors, head, relative=True, **options))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rate", ["absolute", "relative"])
@pytest.mark.parametrize(
    "shape",
    [{"k": 1}, {"k": 12, "labels": 2}, {"labels": 4, "zero_rows": 4}, {"k": 30, "d": 3, "v": 4}],
    ids=[
        "one neighbour",
        "repeated labels",
        "labels without a learnt row",
        "more neighbours than width",
    ],
)
def test_descent_equals_autograd_in_awkward_shapes(
    steps: int, rate: str, shape: dict[str, int]
) -> None:
    hidden, neighbors, head = make_problem(3, **shape)
    lr = 0.05 if rate == "absolute" else 2.0
    actual = functional.mbpa_logits(
        hidden, neighbors, head, lr=lr, steps=steps, eps=EPS, lr_units=rate
    )
    if rate == "absolute":
        expected = reference.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=EPS)
    else:
        expected = relative_reference(hidden, neighbors, head, lr=lr, steps=steps, l2_to_base=0.0)
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
    actual = functional.mbpa_logits(
        hidden, same, head, lr=1e-4, steps=steps, eps=EPS, lr_units="absolute"
    )
    assert_same(actual, reference.mbpa_logits(hidden, same, head, lr=1e-4, steps=steps, eps=EPS))


COUNTS = torch.tensor([0, 1, 2, 3, 5, 8, 13, 100, 10_000, 1, 0, 2, 1])


HEBB = {"lr": 0.02, "steps": 2, "eta": 0.4, "beta": 0.5, "counts": COUNTS, "eps": EPS}


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"beta": beta, "gate": gate}
            for beta in (0.0, 0.15, 0.999)
            for gate in ("gated", "literal")
        ),
        {"steps": 1},
        {"steps": 5, "gate": "literal"},
        {"mbpa": False},
        {"lr": 1e-3, "optimizer": "rmsprop"},
    ],
)
def test_hebb_equals_the_printed_equations(options: dict[str, object]) -> None:
    hidden, neighbors, head = make_problem(11, k=9)
    options = HEBB | options
    actual = functional.hebb_logits(hidden, neighbors, head, lr_units="absolute", **options)
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, **options))


@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0])
def test_hebb_of_a_constant_weight(constant: float) -> None:
    hidden, neighbors, head = make_problem(13)
    actual = functional.hebb_logits(
        hidden, neighbors, head, weighting=constant, lr_units="absolute", **HEBB
    )
    assert_same(actual, reference.hebb_logits(hidden, neighbors, head, constant=constant, **HEBB))


@pytest.mark.parametrize("gate", ["gated", "literal"])
@pytest.mark.parametrize("bias", [True, False])
def test_hebb_of_only_new_classes(gate: str, bias: bool) -> None:
    hidden, neighbors, head = make_problem(12, k=9, labels=6, zero_rows=3, bias=bias)
    new, options = torch.arange(13) >= 10, {**HEBB, "gate": gate}
    actual = functional.hebb_logits(
        hidden, neighbors, head, hebbian_classes=new, lr_units="absolute", **options
    )
    assert_same(
        actual, reference.hebb_logits(hidden, neighbors, head, hebbian_classes=new, **options)
    )
    everywhere = functional.hebb_logits(hidden, neighbors, head, lr_units="absolute", **options)
    assert not torch.allclose(actual, everywhere)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("normalization", ["raw", "sum", "max"])
def test_a_relative_term_written_out(normalization: str, bias: bool) -> None:
    hidden, neighbors, head = make_problem(16, k=9, labels=6, bias=bias)
    new, eps, eta = torch.arange(13) >= 9, 0.01, 2.5
    actual = functional.hebb_logits(
        hidden, neighbors, head, lr=0.02, steps=2, eta=eta, beta=0.5, counts=COUNTS, eps=eps,
        hebbian_classes=new,
        mbpa=False, kernel_normalization=normalization, scale="relative",
    )  # fmt: skip
    for row, query in enumerate(hidden):
        keys, labels, distances = reference.entries_of(neighbors, row)
        logits = head.logits(query)
        if len(labels):
            kernel_weight = 1 / (eps + distances / distances.mean())
            wholes = {"raw": 1.0, "sum": kernel_weight.sum(), "max": kernel_weight.max()}
            lifts = (keys @ query + bias) / (query @ query + bias)
            for label in labels[new[labels]].unique():
                mine = labels == label
                logits[label] += (
                    eta * (kernel_weight[mine] / wholes[normalization] * lifts[mine]).mean()
                )
        assert_same(actual[row : row + 1], logits[None])


@pytest.mark.parametrize(
    ("form", "scale"), [("linear", "relative"), ("linear", "absolute"), ("logit-sum", "absolute")]
)
@pytest.mark.parametrize(("theta", "gamma"), [(0.0, 0.3), (0.4, 0.01), (1.0, 0.9)])
def test_mixture(form: str, scale: str, theta: float, gamma: float) -> None:
    hidden, neighbors, head = make_problem(21, labels=5)
    options = {"theta": theta, "gamma": gamma, "form": form, "scale": scale}
    actual = functional.mixture_log_probs(hidden, neighbors, head, **options)
    expected = reference.mixture_probs(hidden, neighbors, head, **options)
    torch.testing.assert_close(actual.exp(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("temperature", "weight"), [(0.5, 0.25), (10.0, 0.8)])
def test_knn(scale: str, temperature: float, weight: float) -> None:
    hidden, neighbors, head = make_problem(22, labels=5)
    options = {"temperature": temperature, "weight": weight, "scale": scale}
    actual = equations.knn_log_probs(hidden, neighbors, head, **options)
    expected = reference.knn_probs(hidden, neighbors, head, **options)
    torch.testing.assert_close(actual.exp(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("scale", SCALES)
def test_cache_is_mixture_over_a_shared_window(scale: str) -> None:
    _, neighbors, head = make_problem(23, n=1, k=9)
    keys, values = neighbors.keys[0], neighbors.values[0]
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    visible = torch.arange(9) < torch.tensor([0, 1, 5, 9])[:, None]
    actual = equations.cache_log_probs(
        queries, keys, values, head, theta=0.6, weight=0.2, visible=visible, scale=scale
    )
    for query, seen, row in zip(queries, visible, actual, strict=True):
        expected = base = head.logits(query).softmax(0)
        if seen.any():
            products = keys[seen] @ query
            scores = (
                0.6 * (reference.relative(products) if scale == "relative" else products)
            ).exp()
            expected = 0.8 * base + 0.2 * reference.label_distribution(scores, values[seen], 13)
        torch.testing.assert_close(row.exp(), expected, rtol=1e-10, atol=0)
