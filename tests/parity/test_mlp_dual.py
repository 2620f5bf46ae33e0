from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hebblm.adapt.functional import kernel_weight
from hebblm.memory import FlatMemory
from hebblm.types import Neighbors
from hebblm.vision import mlp_adaptation
from hebblm.vision.mlp import MLP
from hebblm.vision.mlp_adaptation import (
    NetworkProblem,
    Stored,
    adapt,
    adapt_mlp,
    curvature,
    descend,
)
from hebblm.vision.settings import Rate
from recipes.bench.naive import network_logits

from . import reference

WIDTH, HIDDEN, CLASSES = 5, 8, 4
EPS = 0.05


def network(seed: int) -> MLP:
    generator = torch.Generator().manual_seed(seed)
    model = MLP.initial(WIDTH, HIDDEN, CLASSES, generator)
    return MLP.of(tuple(3 * parameter.double() for parameter in model.parameters()))


def entries(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Return pixels of which two are the same, and labels."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(count, WIDTH, generator=generator, dtype=torch.float64)
    if count > 1:
        pixels[1] = pixels[0]
    return pixels, torch.randint(CLASSES, (count,), generator=generator)


def problem(seed: int, *, n: int = 4, k: int = 6) -> NetworkProblem:
    """Query 0 is among its own neighbours, query 1 has a single one, query 2 has none."""
    generator = torch.Generator().manual_seed(seed)
    model = network(seed)
    queries = torch.rand(n, WIDTH, generator=generator, dtype=torch.float64)
    keys = torch.rand(n, k, WIDTH, generator=generator, dtype=torch.float64)
    keys[0, 0] = queries[0]
    mask = torch.ones(n, k, dtype=torch.bool)
    mask[1, 1:] = False
    mask[2] = False
    distances = (keys - queries[:, None]).square().sum(2)
    weights = kernel_weight(distances, mask, eps=EPS) / mask.sum(1, keepdim=True).clamp_min(1)
    labels = torch.randint(CLASSES, (n, k), generator=generator)
    points = torch.cat([keys, queries[:, None]], dim=1)
    return NetworkProblem(
        model, points, model.inputs(points), model.logits(points).transpose(1, 2), labels, weights
    )


def expected_delta(given: NetworkProblem, *, rate: float | Tensor, steps: int) -> Tensor:
    rates = torch.as_tensor(rate, dtype=torch.float64).expand(len(given.labels)).tolist()
    rows = zip(given.points, rates, given.labels, given.weights, strict=True)
    logits = [
        network_logits(given.model, points[-1], points[:-1], *row, lr=own, steps=steps)
        for points, own, *row in rows
    ]
    return torch.stack(logits) - given.model.logits(given.points[:, -1])


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.003, 0.05, 1.0])
@pytest.mark.parametrize(
    "shape", [{}, {"n": 3, "k": 30}], ids=["few", "more neighbours than pixels and units"]
)
def test_descent_equals_autograd(steps: int, rate: float, shape: dict[str, int]) -> None:
    given = problem(steps, **shape)
    rates = torch.full(given.labels.shape[:1], rate, dtype=torch.float64)
    delta, _ = descend(given, given.gram(), rates, steps=steps)
    expected = expected_delta(given, rate=rate, steps=steps)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(delta, expected, rtol=1e-10, atol=1e-10)


def test_a_step_switches_hidden_units() -> None:
    given = problem(3)
    rates = torch.full((4,), 1.0, dtype=torch.float64)
    linear, _ = descend(given, given.gram(), rates, steps=1)
    twice, _ = descend(given, given.gram(), rates, steps=2)
    assert not torch.allclose(twice, 2 * linear, rtol=0.05)
    torch.testing.assert_close(
        twice, expected_delta(given, rate=1.0, steps=2), rtol=1e-10, atol=1e-10
    )


def jacobian(given: NetworkProblem, row: int, *, along: bool) -> Tensor:
    """Return how the neighbours' logits (K C, P), less their mean and times ``sqrt(w_k)``, follow
    the parameters.

    Where ``along`` is set, the first layer moves along the weighted mean of the neighbours' pixels
    and a one only.
    """
    pixels, weights, parameters = (
        given.points[row, :-1],
        given.weights[row],
        given.model.parameters(),
    )
    # (D + 1,)
    mean = torch.cat([pixels, torch.ones(len(pixels), 1)], dim=1).mul(weights[:, None]).sum(0)
    mean = mean / mean.norm()

    def logits(*changes: Tensor) -> Tensor:
        if along:
            changes = (torch.outer(changes[0], mean[:-1]), changes[0] * mean[-1], *changes[1:])
        own = MLP.of(tuple(base + change for base, change in zip(parameters, changes, strict=True)))
        found = own.logits(pixels)
        return (weights.sqrt()[:, None] * (found - found.mean(1, keepdim=True))).flatten()

    start = tuple(torch.zeros_like(parameter) for parameter in parameters)
    if along:
        start = (start[1], *start[2:])
    parts = torch.func.jacrev(logits, argnums=tuple(range(len(start))))(*start)
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def unit(given: NetworkProblem) -> Tensor:
    return curvature(
        given.inputs[:, :-1], given.gram()[:, :-1], given.weights, given.model.head.weight
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_curvature_equals_autograd(seed: int) -> None:
    given = problem(seed)
    for row in (0, 1, 3):
        weights = given.weights[row]
        along = given.gram()[row, :-1] @ weights
        all_as_one = weights.sqrt() * along / (weights.sqrt() * along).norm()  # (K,)
        # (K C, C)
        directions = torch.kron(all_as_one[:, None], torch.eye(CLASSES, dtype=torch.float64))
        moved = directions.T @ jacobian(given, row, along=True)
        expected = torch.linalg.eigvalsh(moved @ moved.T)[-1]
        torch.testing.assert_close(unit(given)[row], expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_curvature_is_at_most_that_of_the_tangent_kernel(seed: int) -> None:
    given = problem(seed)
    largest = [
        torch.linalg.matrix_norm(jacobian(given, row, along=False), 2).square() for row in range(4)
    ]
    ratio = unit(given) / torch.stack(largest).clamp_min(1e-30)
    assert (ratio <= 1 + 1e-12).all()
    assert (ratio[[0, 3]] > 0.6).all()
    # a single neighbour
    torch.testing.assert_close(ratio[1], torch.ones_like(ratio[1]), rtol=1e-10, atol=0)
    assert ratio[2] == 0  # none


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rho", [0.5, 4.0, 20.0])
def test_relative_descent_equals_autograd(rho: float, steps: int) -> None:
    given = problem(steps)
    delta, _ = adapt(given, lr=rho, rate="relative", steps=steps)
    rates = rho / unit(given)
    expected = expected_delta(given, rate=rates.where(rates.isfinite(), 0), steps=steps)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(delta, expected, rtol=1e-9, atol=1e-9)


def test_a_relative_rate_knows_no_scale_of_closeness() -> None:
    given = problem(4)
    closer = replace(given, weights=1e6 * given.weights)
    found, scaled = (adapt(some, lr=8.0, rate="relative", steps=3)[0] for some in (given, closer))
    assert found.abs().max() > 0.1
    torch.testing.assert_close(scaled, found, rtol=1e-9, atol=1e-12)


def test_within_the_bound_no_loss_rises_where_an_absolute_rate_lets_it() -> None:
    rises: dict[Rate, int] = {"relative": 0, "absolute": 0}
    for seed in range(10):
        for rate in rises:
            _, loss_increased = adapt(problem(seed), lr=3.5, rate=rate, steps=5)
            rises[rate] += int(loss_increased.sum())
    assert rises["relative"] == 0
    assert rises["absolute"] > 0


@pytest.mark.parametrize("rate", ["relative", "absolute"])
def test_a_query_without_neighbours_keeps_the_base(rate: Rate) -> None:
    delta, loss_increased = adapt(problem(5), lr=0.5, rate=rate, steps=5)
    assert delta[2].abs().max() < 1e-12
    assert not loss_increased[2]


@pytest.mark.parametrize("rate", ["relative", "absolute"])
def test_divergence_is_told_and_never_a_number(rate: Rate) -> None:
    given = problem(6)
    _, loss_increased = adapt(given, lr=1e4, rate=rate, steps=5)
    assert loss_increased[[0, 3]].any()
    delta, loss_increased = adapt(given, lr=1e200, rate=rate, steps=5)
    assert loss_increased[[0, 1, 3]].all()
    assert delta.abs().max() < 1e-12


@pytest.mark.parametrize("rate", ["relative", "absolute"])
def test_rate_zero_changes_nothing(rate: Rate) -> None:
    delta, loss_increased = adapt(problem(8), lr=0.0, rate=rate, steps=5)
    assert not delta.any()
    assert not loss_increased.any()


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("count", [1, 4, 40])  # fewer than K, and more
def test_adaptation_equals_the_printed_equations(steps: int, count: int) -> None:
    model, k, rate, beta, eta = network(11), 7, 0.02, 0.6, 0.3
    pixels, labels = entries(12, count)
    queries = torch.cat([entries(13, 5)[0], pixels[:1]])  # the last one is stored itself
    counts = torch.tensor([0, 1, 3, 50])
    memory = FlatMemory(WIDTH, dtype=torch.float64)
    memory.add(pixels, labels)
    result = adapt_mlp(
        Stored.under(memory, model), queries, k=k, lr=rate, rate="absolute", steps=steps, eps=EPS
    )
    assert not result.loss_increased.any()
    for row, query in enumerate(queries):
        order = (pixels - query).square().sum(1).argsort(stable=True)[:k]
        keys, classes = pixels[order], labels[order]
        distances = (keys - query).square().sum(1)
        weights = 1 / (EPS + distances) / len(order)
        base = model.logits(query)
        mbpa = network_logits(model, query, keys, classes, weights, lr=rate, steps=steps)
        torch.testing.assert_close(result.mbpa()[row], mbpa, rtol=1e-9, atol=1e-9)

        everyone = torch.ones(1, len(order), dtype=torch.bool)
        hidden = Neighbors(model.hidden(keys)[None], classes[None], distances[None], everyone)
        change, offset, present = reference.hebbian_change(
            hidden, 0, model.head, eps=EPS, hebbian_classes=None
        )
        expected = base.clone()
        for i in range(CLASSES):
            n = int(counts[i])
            e = (1 - beta) / (1 - beta**n) if n > 0 and present[i] else 0.0
            bump = change[i] @ model.hidden(query) + offset[i]
            expected[i] += (1 - e) * (mbpa - base)[i] + e * eta * bump
        hebb = result.hebb(counts, beta=beta, eta=eta)[row]
        torch.testing.assert_close(hebb, expected, rtol=1e-9, atol=1e-9)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(14)
    memory = FlatMemory(WIDTH, dtype=torch.float64)
    memory.add(*entries(15, 30))
    queries = entries(16, 9)[0]
    whole = adapt_mlp(
        Stored.under(memory, model), queries, k=5, lr=0.1, rate="relative", steps=3, eps=EPS
    )
    monkeypatch.setattr(mlp_adaptation, "CPU_CHUNK_BYTES", 1)
    parted = adapt_mlp(
        Stored.under(memory, model), queries, k=5, lr=0.1, rate="relative", steps=3, eps=EPS
    )
    torch.testing.assert_close(parted.mbpa(), whole.mbpa(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parted.term.values, whole.term.values, rtol=1e-12, atol=1e-12)
