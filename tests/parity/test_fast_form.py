from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.functional.active_set import solve_active
from hebblm.adapt.functional.closeness import closeness
from hebblm.adapt.functional.descent import solve_exact
from hebblm.adapt.functional.grouping import distinct
from hebblm.adapt.functional.problem import Problem
from hebblm.adapt.functional.widths import (
    NARROW,
    SPARE,
    active_size,
    narrow_serves,
    rank_classes,
)
from hebblm.types import Neighbors, OutputHead

from .problems import make_problem


def as_problem(hidden: torch.Tensor, neighbors: Neighbors, head: OutputHead) -> Problem:
    weights = closeness(neighbors.distances, neighbors.mask, eps=1e-3)
    weights = weights / neighbors.mask.sum(1, keepdim=True).clamp_min(1)
    return Problem(
        head,
        hidden,
        neighbors.keys,
        neighbors.values,
        weights,
        head.logits(hidden),
        neighbors.log_normalizers,
    )


def language_like(seed: int, *, n: int, k: int, d: int, v: int) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    """Return states in clusters, a head with a Zipfian bias, and labels drawn from the head itself."""
    generator = torch.Generator().manual_seed(seed)
    entries = 20 * k
    centres = torch.randn(12, d, generator=generator, dtype=torch.float64)
    cluster = torch.randint(0, 12, (entries + n,), generator=generator)
    noise = torch.randn(entries + n, d, generator=generator, dtype=torch.float64)
    states = torch.tanh(0.7 * centres[cluster] + 0.3 * noise)
    weight = torch.randn(v, d, generator=generator, dtype=torch.float64) / d**0.5 * 2
    head = OutputHead(weight, -1.2 * torch.arange(1, v + 1, dtype=torch.float64).log())
    labels = torch.multinomial(head.logits(states).softmax(1), 1, generator=generator).squeeze(1)
    memory, queries = states[:entries], states[entries:]
    squared = (queries[:, None] - memory).square().sum(2)
    distances, index = squared.topk(k, largest=False)
    keys = memory[index]
    mask = torch.ones(n, k, dtype=torch.bool)
    return queries, Neighbors(keys, labels[index], distances, mask, head.logits(keys).logsumexp(2)), head


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("pull", [0.0, 0.5])
@pytest.mark.parametrize("stored", [True, False])
def test_equals_exact_where_all_classes_are_followed(steps: int, pull: float, stored: bool) -> None:
    hidden, neighbors, head = make_problem(31, k=9, labels=4, zero_rows=2)
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    problem = as_problem(hidden, neighbors, head)
    rates, watch = torch.full((5,), 0.05, dtype=torch.float64), torch.ones(5, dtype=torch.bool)
    fast = solve_active(problem, rates, watch, steps=steps, pull=pull, active=13)
    exact = solve_exact(problem, rates, watch, steps=steps, pull=pull)
    torch.testing.assert_close(fast.delta, exact.delta, rtol=1e-10, atol=1e-12)
    assert torch.equal(fast.rose, exact.rose)
    assert fast.error.max() < 1e-10


def test_small_vocabulary_takes_the_exact_path() -> None:
    hidden, neighbors, head = make_problem(32)
    fast = functional.mbpa_logits(hidden, neighbors, head, lr=0.1, steps=5, eps=1e-3, method="fast")
    assert torch.equal(fast, functional.mbpa_logits(hidden, neighbors, head, lr=0.1, steps=5, eps=1e-3))


@pytest.mark.parametrize(("steps", "lr"), [(1, 0.1), (5, 0.1), (1, 2.0)])
@pytest.mark.parametrize(("stored", "mean_bound"), [(True, 1e-3), (False, 1e-3)])
def test_error_against_exact(steps: int, lr: float, stored: bool, mean_bound: float) -> None:
    hidden, neighbors, head = language_like(33, n=24, k=60, d=40, v=4000)
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    options = {"lr": lr, "steps": steps, "eps": 1e-3, "tolerance": torch.inf}
    exact = functional.mbpa_logits(hidden, neighbors, head, **options).log_softmax(1)
    fast = functional.mbpa_logits(hidden, neighbors, head, method="fast", **options).log_softmax(1)
    base = head.logits(hidden).log_softmax(1)
    expected = (exact.exp() * (fast - exact).abs()).sum(1).mean()  # what a target drawn from exact would see
    moved = (exact.exp() * (exact - base).abs()).sum(1).mean()
    assert expected < mean_bound
    assert expected < 0.1 * moved


def test_active_set_holds_every_label_and_then_the_most_probable() -> None:
    hidden, neighbors, head = language_like(34, n=6, k=20, d=10, v=500)
    logits = head.logits(hidden)
    present = neighbors.mask.clone()
    present[0] = False
    ranking = rank_classes(logits, neighbors.values, present, 64)
    assert ranking[0].tolist() == logits[0].topk(64).indices.tolist()
    for row in range(1, 6):
        labels = set(neighbors.values[row].tolist())
        assert distinct(neighbors.values)[row] == len(labels)
        assert set(ranking[row, : len(labels)].tolist()) == labels
        others = [i for i in logits[row].argsort(descending=True).tolist() if i not in labels]
        assert ranking[row, len(labels) :].tolist() == others[: 64 - len(labels)]


def test_few_classes_serve_where_the_tail_is_light_and_the_labels_fit() -> None:
    hidden, neighbors, head = language_like(37, n=24, k=140, d=40, v=4000)
    problem = as_problem(hidden, neighbors, head)
    crowded = replace(problem, labels=torch.arange(140).expand(24, -1) + 7)
    told = {"rate": 0.1, "steps": 5}
    serves = narrow_serves(problem, **told, tolerance=1e-3)
    assert serves.any()
    assert not narrow_serves(crowded, **told, tolerance=torch.inf).any()
    assert not narrow_serves(problem, **told, tolerance=0.0).any()
    some = problem.weights.clone()
    some[:, 1:] = 0  # masked entries carry no label
    assert narrow_serves(replace(crowded, weights=some), **told, tolerance=torch.inf).all()
    fits = distinct(problem.labels) + SPARE <= NARROW
    assert torch.equal(narrow_serves(problem, **told, tolerance=torch.inf), fits)
    rates, never = torch.full((24,), 0.1, dtype=torch.float64), torch.zeros(24, dtype=torch.bool)
    narrow = solve_active(problem, rates, never, steps=5, pull=0.0, active=NARROW, tolerance=1e-3)
    exact = solve_exact(problem, rates, never, steps=5, pull=0.0)
    log_probs = (problem.base_logits + exact.delta).log_softmax(1)
    apart = log_probs - (problem.base_logits + narrow.delta).log_softmax(1)
    assert ((log_probs.exp() * apart.abs()).sum(1)[serves] <= 1e-3).all()


def test_active_size() -> None:
    assert active_size(200, 33_278, None) == 255
    assert active_size(300, 33_278, None) > 300
    assert active_size(20, 33_278, 100) == 100
    assert active_size(200, 210, None) == 210


@pytest.mark.parametrize("stored", [True, False])
def test_chunks_padding_and_batch_mates_change_nothing(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, neighbors, head = language_like(35, n=8, k=12, d=10, v=1500)
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    options = {"lr": 0.1, "steps": 3, "eps": 1e-3, "method": "fast", "active": 64}
    whole = functional.mbpa_logits(hidden, neighbors, head, **options)
    padded = Neighbors(
        torch.nn.functional.pad(neighbors.keys, (0, 0, 0, 5)),
        torch.nn.functional.pad(neighbors.values, (0, 5)),
        torch.nn.functional.pad(neighbors.distances, (0, 5), value=torch.inf),
        torch.nn.functional.pad(neighbors.mask, (0, 5)),
        torch.nn.functional.pad(neighbors.log_normalizers, (0, 5), value=torch.nan) if stored else None,
    )
    torch.testing.assert_close(
        functional.mbpa_logits(hidden, padded, head, **options), whole, rtol=1e-12, atol=1e-12
    )
    monkeypatch.setattr("hebblm.adapt.functional.escalation.BYTES", 1)
    torch.testing.assert_close(
        functional.mbpa_logits(hidden, neighbors, head, **options), whole, rtol=1e-12, atol=1e-12
    )


def test_a_query_without_entries_keeps_the_base() -> None:
    hidden, neighbors, head = make_problem(36, v=400, d=8)
    logits = functional.mbpa_logits(
        hidden, neighbors, head, lr=0.1, steps=5, eps=1e-3, method="fast", active=50
    )
    assert torch.equal(logits[2], head.logits(hidden)[2])
    assert not torch.equal(logits[1], head.logits(hidden)[1])


def test_single_precision_stays_finite_without_a_tail() -> None:
    hidden, neighbors, head = make_problem(37, v=400, d=8, dtype=torch.float32)
    assert head.bias is not None
    far = OutputHead(head.weight, head.bias + 200 * (torch.arange(400) < 40))
    low = replace(
        neighbors, values=neighbors.values % 40, log_normalizers=far.logits(neighbors.keys).logsumexp(2)
    )
    for case in (low, replace(low, log_normalizers=None)):
        logits = functional.mbpa_logits(
            hidden, case, far, lr=0.1, steps=5, eps=1e-3, method="fast", active=50
        )
        exact = functional.mbpa_logits(hidden, case, far, lr=0.1, steps=5, eps=1e-3)
        torch.testing.assert_close(logits.log_softmax(1), exact.log_softmax(1), rtol=1e-4, atol=1e-3)
