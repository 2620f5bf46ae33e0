from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hebblm.adapt.functional import MbpaResult
from hebblm.bench import adapt_cost as accuracy
from hebblm.bench.problem import Batch, make_batch
from hebblm.bench.source import SyntheticSource


@pytest.fixture(scope="module")
def batch() -> Batch:
    source = SyntheticSource(12, 80, seed=5, device=torch.device("cpu"))
    return make_batch(source, entries=120, queries=9, k=7)


def test_errors_vanish_where_every_class_is_followed(batch: Batch) -> None:
    found = accuracy.errors(batch, lr=2.0, steps=2)
    assert found["error_max"] < 1e-4
    assert abs(found["kl"]) < 1e-7
    assert found["plain_error_mean"] < 1e-2
    assert found["rose_share"] == 0
    assert accuracy.naive_difference(batch, lr=2.0, steps=2) < 2e-2  # by the largest eigenvalue


def test_errors_are_those_of_the_fast_form(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = 0.05
    original = accuracy.F.mbpa_delta

    def altered(*args: Any, method: str, **options: Any) -> MbpaResult:
        result = original(*args, method="exact", **options)
        if method == "exact":
            return result
        delta = result.delta.clone()
        delta[0, batch.targets[0]] += raised
        return replace(result, delta=delta, rose=torch.arange(9) < 3)

    monkeypatch.setattr(accuracy.F, "mbpa_delta", altered)
    found = accuracy.errors(batch, lr=2.0, steps=2)
    wide = batch.double()
    base = wide.head.logits(wide.hidden)
    options: dict[str, Any] = {"lr": 2.0, "steps": 2, "eps": accuracy.EPS, "rate": "relative"}
    exact = original(wide.hidden, wide.neighbors, wide.head, base, method="exact", **options)
    p = (base + exact.delta)[0].softmax(0)[batch.targets[0]].item()
    gain = raised - math.log(1 - p + p * math.exp(raised))  # what the raised logit adds to log p of the target
    assert found["error_max"] == pytest.approx(gain, rel=1e-3)
    assert found["error_mean"] == pytest.approx(gain / 9, rel=1e-3)
    assert found["perplexity_bias_percent"] == pytest.approx(100 * math.expm1(-gain / 9), rel=1e-3)
    divergence = math.log(1 - p + p * math.exp(raised)) - p * raised
    assert found["kl"] == pytest.approx(divergence / 9, rel=1e-2)
    assert found["rose_share"] == pytest.approx(1 / 3)
