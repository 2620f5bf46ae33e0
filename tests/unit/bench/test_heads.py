from __future__ import annotations

import pytest
import torch

from hebblm.bench import adapt
from hebblm.bench.adapt import head_cases
from hebblm.bench.configs import AdaptConfig
from hebblm.bench.record import Rounds
from hebblm.errors import UserError


def test_a_row_a_layer_holds_its_sizes_and_what_adaptation_costs_beside_its_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapt, "HEADS", {"gpt2": (300, 24), "gemma-2-9b": (500, 16)})
    config = AdaptConfig(heads=["gpt2", "gemma-2-9b"], k=8, batch=20, entries=100)
    ticks: list[None] = []
    rounds = Rounds(torch.device("cpu"), config.repeats, lambda: ticks.append(None))
    rows = [case() for case in head_cases(config, rounds)]
    assert [(row.case["head"], row.case["vocabulary"], row.case["dim"]) for row in rows] == [
        ("gpt2", 300, 24),
        ("gemma-2-9b", 500, 16),
    ]
    for row in rows:
        assert list(row.timings) == ["head", "fast_mbpa", "fast_hebb", "mixture"]
        assert row.values["head_bytes"] == 4 * row.case["vocabulary"] * row.case["dim"]
        costs = row.timings["fast_mbpa"].times(row.timings["head"])
        assert costs.low <= row.values["fast_mbpa_over_head"] <= costs.high
    assert len(ticks) == 2 * (config.repeats + 1)


def test_an_unknown_layer_is_refused() -> None:
    with pytest.raises(UserError, match="unknown head 'gtp2'; did you mean gpt2"):
        AdaptConfig(heads=["gtp2"])
