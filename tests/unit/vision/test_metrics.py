from __future__ import annotations

import pytest
import torch

from hebblm.vision.permuted_mnist.chain import MISSING
from hebblm.vision.permuted_mnist.result import accuracies_of, continual_scores, curve_of
from hebblm.vision.result import spread


def test_accuracies_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    predictions = torch.full((2, 2, 4), MISSING, dtype=torch.uint8)
    predictions[0, 0, :3] = torch.tensor([0, 1, 1])  # of the first three only
    predictions[1, 0] = torch.tensor([0, 0, 0, 0])
    predictions[1, 1] = torch.tensor([0, 1, 2, 1])
    assert accuracies_of(predictions, labels) == [[pytest.approx(2 / 3)], [0.25, 1.0]]


def test_summaries_by_hand() -> None:
    accuracies = [[0.8], [0.9, 0.7], [0.5, 0.75, 0.6]]
    assert curve_of(accuracies) == pytest.approx([0.8, 0.8, 1.85 / 3])
    assert continual_scores(accuracies) == {
        "average_accuracy": pytest.approx(1.85 / 3),
        "forgetting": pytest.approx(((0.9 - 0.5) + (0.7 - 0.75)) / 2),
        "backward_transfer": pytest.approx(((0.5 - 0.8) + (0.75 - 0.7)) / 2),
    }


def test_a_single_task_cannot_be_forgotten() -> None:
    assert continual_scores([[0.8]]) == {"average_accuracy": 0.8, "forgetting": None, "backward_transfer": None}


def test_spread_is_that_of_a_sample() -> None:
    assert spread([1.0, 2.0, 3.0]) == {"mean": 2.0, "std": 1.0}
    assert spread([2.0]) == {"mean": 2.0, "std": None}
