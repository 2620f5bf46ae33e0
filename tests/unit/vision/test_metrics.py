from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.vision.experiments import _permuted_method, accuracies_of, continual_scores
from hebblm.vision.permuted import MISSING
from hebblm.vision.result import SeedRun, at_end, spread

from .samples import TINY


def test_accuracies_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    predictions = torch.full((2, 2, 4), MISSING, dtype=torch.uint8)
    predictions[0, 0, :3] = torch.tensor([0, 1, 1])  # of the first three only
    predictions[1, 0] = torch.tensor([0, 0, 0, 0])
    predictions[1, 1] = torch.tensor([0, 1, 2, 1])
    assert accuracies_of(predictions, labels) == [[pytest.approx(2 / 3)], [0.25, 1.0]]


def test_summaries_by_hand() -> None:
    accuracies = [[0.8], [0.9, 0.7], [0.5, 0.75, 0.6]]
    assert continual_scores([[0.8], [0.9, 0.7], [0.6, 0.7, 0.8]], accuracies) == {
        "average_accuracy": pytest.approx(2.1 / 3),
        "forgetting": pytest.approx(((0.9 - 0.5) + (0.7 - 0.75)) / 2),
        "backward_transfer": pytest.approx(((0.5 - 0.8) + (0.75 - 0.7)) / 2),
    }


def test_what_a_task_changes_is_measured_on_the_same_samples() -> None:
    labels = torch.zeros(4, dtype=torch.int64)
    predictions = torch.full((2, 2, 4), MISSING, dtype=torch.uint8)
    predictions[0, 0, :2] = torch.tensor([0, 0])
    predictions[1] = torch.tensor([0, 0, 1, 1])  # the first ones as right as before
    settings = replace(TINY, tasks=2, test_samples=4, curve_samples=2, tune_tasks=2)
    runs = [SeedRun(1, {}, labels, {"mlp": predictions}, {"mlp": {}}, {})]
    found = _permuted_method(runs, "mlp", settings)
    assert [found[name]["mean"] for name in ("average_accuracy", "forgetting", "backward_transfer")] == [0.5, 0.0, 0.0]
    assert [point["mean"] for point in found["curve"]] == [1.0, 1.0]
    assert found["seeds"][0]["accuracy"] == [[1.0], [0.5, 0.5]]


def test_a_best_value_at_an_end_is_told_with_its_condition() -> None:
    tried = {
        "parametric": [{"lr": lr, "harmonic_mean": lr, "harmonic_mean_reached": 0.1, "loss": lr} for lr in (1, 2, 3)],
        "hebb": [{"beta": beta, "eta": 1.0, "harmonic_mean": beta, "loss": 1.0} for beta in (0.1, 0.2)],
        "mixture": [{"theta": theta, "harmonic_mean": theta % 3, "loss": 1.0} for theta in (1.0, 2.0, 3.0)],
    }
    assert at_end({"50": tried, "70": None}) == ["parametric.lr (50)", "hebb.beta (50)"]
    assert at_end({"": {"ewc": [{"lambda": 1.0, "accuracy": 0.5, "loss": 1.0}]}}) == []
    flat = [{"theta": theta, "accuracy": min(theta, 2.0), "loss": 1.0} for theta in (1.0, 2.0, 3.0)]
    assert at_end({"": {"mixture": flat[:2]}}) == ["mixture.theta"]
    assert at_end({"": {"mixture": flat[::-1]}}) == [], "the value before the end does as well"
    for value, ends in ((0.9, ["mixture.gamma"]), (1.0, [])):  # nothing lies beyond a share of 1
        points = [{"gamma": gamma, "accuracy": gamma, "loss": 1.0} for gamma in (0.5, value)]
        assert at_end({"": {"mixture": points}}) == ends


def test_a_single_task_cannot_be_forgotten() -> None:
    assert continual_scores([[0.8]], [[0.9]]) == {
        "average_accuracy": 0.8,
        "forgetting": None,
        "backward_transfer": None,
    }


def test_spread_is_that_of_a_sample() -> None:
    assert spread([1.0, 2.0, 3.0]) == {"mean": 2.0, "std": 1.0}
    assert spread([2.0]) == {"mean": 2.0, "std": None}
