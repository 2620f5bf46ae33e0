from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.adapt.functional import closeness
from hebblm.bench.naive_network import adapted_logits
from hebblm.memory import FlatMemory
from hebblm.types import Neighbors
from hebblm.vision import recall as recall_module
from hebblm.vision.adaptation import NetworkProblem, adapt, descend
from hebblm.vision.mlp import MLP
from hebblm.vision.recall import Stored, recall

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
    weights = closeness(distances, mask, eps=EPS) / mask.sum(1, keepdim=True).clamp_min(1)
    labels = torch.randint(CLASSES, (n, k), generator=generator)
    points = torch.cat([keys, queries[:, None]], dim=1)
    return NetworkProblem(
        model, points, model.inputs(points), model.logits(points).transpose(1, 2), labels, weights
    )


def expected_delta(given: NetworkProblem, *, rate: float, steps: int) -> Tensor:
    rows = zip(given.points, given.labels, given.weights, strict=True)
    logits = [
        adapted_logits(given.model, points[-1], points[:-1], *row, rate=rate, steps=steps)
        for points, *row in rows
    ]
    return torch.stack(logits) - given.model.logits(given.points[:, -1])


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.003, 0.05, 1.0])
def test_descent_equals_autograd(steps: int, rate: float) -> None:
    given = problem(steps)
    delta, _ = descend(given, torch.full((4,), rate, dtype=torch.float64), steps=steps)
    expected = expected_delta(given, rate=rate, steps=steps)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(delta, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 5])
def test_more_neighbours_than_pixels_and_units(steps: int) -> None:
    given = problem(7, n=3, k=30)
    delta, _ = descend(given, torch.full((3,), 0.1, dtype=torch.float64), steps=steps)
    expected = expected_delta(given, rate=0.1, steps=steps)
    torch.testing.assert_close(delta, expected, rtol=1e-10, atol=1e-10)


def test_a_step_switches_hidden_units() -> None:
    given = problem(3)
    rates = torch.full((4,), 1.0, dtype=torch.float64)
    linear, _ = descend(given, rates, steps=1)
    twice, _ = descend(given, rates, steps=2)
    assert not torch.allclose(twice, 2 * linear, rtol=0.05)
    torch.testing.assert_close(twice, expected_delta(given, rate=1.0, steps=2), rtol=1e-10, atol=1e-10)


def test_a_query_without_neighbours_keeps_the_base() -> None:
    delta, stabilized = adapt(problem(5), rate=0.5, steps=5)
    assert delta[2].abs().max() < 1e-12
    assert not stabilized[2]


def test_a_diverging_query_is_run_at_a_rate_that_does_not() -> None:
    given = problem(6)
    rates = torch.full((4,), 1e4, dtype=torch.float64)
    _, rises = descend(given, rates, steps=5)
    assert rises.any()
    delta, stabilized = adapt(given, rate=1e4, steps=5)
    assert torch.equal(stabilized, rises)
    assert delta.isfinite().all()
    at = int(stabilized.nonzero()[0])
    smaller = [expected_delta(given, rate=1e4 / 4**power, steps=5)[at] for power in range(1, 13)]
    assert any(torch.allclose(delta[at], candidate, rtol=1e-8) for candidate in smaller)


def test_rate_zero_changes_nothing() -> None:
    delta, stabilized = adapt(problem(8), rate=0.0, steps=5)
    assert not delta.any()
    assert not stabilized.any()


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("count", [1, 4, 40])  # fewer than K, and more
def test_recall_equals_the_printed_equations(steps: int, count: int) -> None:
    model, k, rate, beta, eta = network(11), 7, 0.02, 0.6, 0.3
    pixels, labels = entries(12, count)
    queries = torch.cat([entries(13, 5)[0], pixels[:1]])  # the last one is stored itself
    counts = torch.tensor([0, 1, 3, 50])
    memory = FlatMemory(WIDTH, dtype=torch.float64)
    memory.add(pixels, labels)
    result = recall(Stored.under(memory, model), queries, k=k, rate=rate, steps=steps, eps=EPS)
    assert not result.stabilized.any()
    for row, query in enumerate(queries):
        order = (pixels - query).square().sum(1).argsort(stable=True)[:k]
        keys, classes = pixels[order], labels[order]
        distances = (keys - query).square().sum(1)
        weights = 1 / (EPS + distances) / len(order)
        base = model.logits(query)
        mbpa = adapted_logits(model, query, keys, classes, weights, rate=rate, steps=steps)
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
    whole = recall(Stored.under(memory, model), queries, k=5, rate=0.1, steps=3, eps=EPS)
    monkeypatch.setattr(recall_module, "CPU_CHUNK_BYTES", 1)
    parted = recall(Stored.under(memory, model), queries, k=5, rate=0.1, steps=3, eps=EPS)
    torch.testing.assert_close(parted.mbpa(), whole.mbpa(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parted.term.bumps, whole.term.bumps, rtol=1e-12, atol=1e-12)
