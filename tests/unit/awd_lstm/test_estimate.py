from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from awd_lstm import AWDLSTMConfig, TrainingConfig, estimate, training_seconds

MODEL = AWDLSTMConfig(30, 6, 8, 2, dropout=0.1, dropouth=0.1, dropouti=0.1, dropoute=0.0, wdrop=0.1)
CONFIG = TrainingConfig(batch_size=4, epochs=3, optimizer="adamw", lr=0.01, bptt=10)
IDS = np.random.default_rng(0).integers(0, 30, 5000)


class Clock:
    """Every reading is one second after the last."""

    def __init__(self) -> None:
        self.ticks = count()

    def monotonic(self) -> float:
        return float(next(self.ticks))


def test_the_estimate_is_epochs_times_tokens_times_seconds_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate, "time", Clock())
    monkeypatch.setattr(estimate, "PATIENCE", 100.0)
    one = training_seconds(MODEL, replace(CONFIG, epochs=1), IDS)
    # A segment takes one second and about 40 tokens.
    assert 5000 / 80 < one < 5000 / 20
    monkeypatch.setattr(estimate, "time", Clock())
    assert training_seconds(MODEL, CONFIG, IDS) == pytest.approx(3 * one)


def test_both_phases_of_a_sampled_run_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"sampled": 1.0, "full": 10.0}
    monkeypatch.setattr(
        estimate, "_seconds_per_token", lambda model, config, *rest: speeds[config.softmax]
    )
    sampled = replace(CONFIG, softmax="sampled", samples=8, full_from=0.75)
    assert training_seconds(MODEL, sampled, IDS) == pytest.approx(3 * 5000 * (0.75 * 1 + 0.25 * 10))
    assert training_seconds(MODEL, CONFIG, IDS) == pytest.approx(3 * 5000 * 10)


def test_a_text_shorter_than_the_warm_up_still_gives_an_estimate() -> None:
    assert training_seconds(MODEL, CONFIG, IDS[:40]) > 0


def test_a_slow_machine_is_measured_for_a_few_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(estimate, "time", clock)
    monkeypatch.setattr(estimate, "PATIENCE", 0.5)
    training_seconds(MODEL, CONFIG, IDS)
    assert next(clock.ticks) == 2  # one segment: two readings
