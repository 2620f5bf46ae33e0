from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hebblm.adapt import functional as F
from recipes.bench import adapt, adapt_cost, network
from recipes.bench.configs import AdaptConfig
from recipes.bench.plain_fast import plain_fast
from recipes.bench.record import Rounds
from recipes.bench.source import Batch, SyntheticSource, make_batch

CPU = torch.device("cpu")
OPTIONS: dict[str, Any] = {"lr": 2.0, "steps": 2, "eps": 1e-3, "lr_units": "relative"}


@pytest.fixture(scope="module")
def batch() -> Batch:
    return make_batch(SyntheticSource(12, 80, seed=5, device=CPU), entries=120, queries=9, k=7)


def test_a_batch_is_what_a_memory_returns(batch: Batch) -> None:
    near = batch.neighbors
    assert near.keys.shape == (9, 7, 12)
    expected = (near.keys - batch.hidden[:, None]).square().sum(2)
    torch.testing.assert_close(near.distances, expected, rtol=1e-4, atol=1e-4)
    assert near.log_normalizers is not None
    torch.testing.assert_close(near.log_normalizers, batch.head.logits(near.keys).logsumexp(2))
    assert int(batch.counts.sum()) == 120
    part = batch.first(4, 3)
    assert part.hidden.shape == (4, 12)
    assert torch.equal(part.neighbors.keys, near.keys[:4, :3])
    assert part.double().neighbors.distances.dtype == torch.float64


def test_errors_vanish_where_every_class_is_followed(batch: Batch) -> None:
    found = adapt_cost.errors(batch, OPTIONS)
    assert found["error_max"] < 1e-4
    assert abs(found["kl"]) < 1e-7


def test_errors_are_those_of_the_fast_form(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = 0.05
    original = F.mbpa_logits

    def altered(*args: Any, solver: str, **options: Any) -> torch.Tensor:
        logits = original(*args, solver="exact", **options)
        if solver == "fast":
            logits[0, batch.targets[0]] += raised
        return logits

    monkeypatch.setattr(F, "mbpa_logits", altered)
    found = adapt_cost.errors(batch, OPTIONS)
    p = (
        original(*batch.double().given(), solver="exact", **OPTIONS)[0]
        .softmax(0)[batch.targets[0]]
        .item()
    )
    # what the raised logit adds to log p of the target
    gain = raised - math.log(1 - p + p * math.exp(raised))
    assert found["error_max"] == pytest.approx(gain, rel=1e-3)
    assert found["error_mean"] == pytest.approx(gain / 9, rel=1e-3)
    assert found["perplexity_bias_percent"] == pytest.approx(100 * math.expm1(-gain / 9), rel=1e-3)
    divergence = math.log(1 - p + p * math.exp(raised)) - p * raised
    assert found["kl"] == pytest.approx(divergence / 9, rel=1e-2)


@pytest.mark.parametrize(("classes", "k"), [(80, 7), (1000, 40)])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_plain_fast_form_follows_the_exact_form(classes: int, k: int, steps: int) -> None:
    batch = make_batch(
        SyntheticSource(12, classes, seed=5, device=CPU), entries=300, queries=9, k=k
    )
    options: dict[str, Any] = {"lr": 3.0, "steps": steps, "eps": 1e-3}
    plain = plain_fast(*batch.given(), **options).log_softmax(1)
    exact = F.mbpa_logits(*batch.given(), lr_units="relative", **options).log_softmax(1)
    base = batch.head.logits(batch.hidden).log_softmax(1)
    off = (exact.exp() * (plain - exact).abs()).sum(1)
    moved = (exact.exp() * (base - exact).abs()).sum(1)
    assert off.mean() < (0.01 if steps == 1 else 0.1) * moved.mean()


def test_a_row_a_layer_holds_its_sizes_and_what_adaptation_costs_beside_its_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapt, "HEADS", {"gpt2": (300, 24), "gemma-2-9b": (500, 16)})
    config = AdaptConfig(heads=["gpt2", "gemma-2-9b"], k=8, batch=20, entries=100)
    rows = [case() for case in adapt.head_cases(config, Rounds(CPU, config.repeats))]
    assert [
        (row.case["head"], row.case["vocabulary"], row.case["dim"], row.case["batch"])
        for row in rows
    ] == [
        ("gpt2", 300, 24, 20),
        ("gemma-2-9b", 500, 16, 20),
    ]
    for row in rows:
        assert list(row.timings) == ["head", "fast_mbpa", "fast_hebb", "mixture"]
        assert row.values["head_bytes"] == 4 * row.case["vocabulary"] * row.case["dim"]
        costs = row.timings["fast_mbpa"].times(row.timings["head"])
        assert costs.low <= row.values["fast_mbpa_over_head"] <= costs.high


def test_both_forms_of_the_network_agree_and_change_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "HIDDEN", 12)
    config = AdaptConfig(steps=[1, 3])
    rounds = Rounds(CPU, config.repeats)
    rows = [case() for case in network.network_cases(config, rounds)]
    assert [row.case["steps"] for row in rows] == [1, 3]
    for row in rows:
        assert row.values["difference_max"] < 1e-10
        assert row.values["change_max"] > 1e-4
        assert row.timings["naive"].tokens == (2,) * 5
        assert row.timings["dual"].tokens == (10,) * 5
    original = network.adapt
    monkeypatch.setattr(
        network, "adapt", lambda problem, *, lr, **given: original(problem, lr=2 * lr, **given)
    )
    assert network.network_cases(config, rounds)[0]().values["difference_max"] > 1e-5
