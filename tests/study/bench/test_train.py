"""The estimate of a whole recipe in a training's measurement."""

from __future__ import annotations

import pytest
import torch

from recipes.bench import train
from recipes.bench.record import Rounds


def test_the_whole_recipe_is_all_epochs_of_the_corpus_of_that_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train, "TEXTS", {50: ("ptb", 9_000)})
    config = train.TrainBenchConfig(preset=["tiny"], vocabulary=[50, 60], segments=1)
    known, other = (
        case() for case in train.cases(config, Rounds(torch.device("cpu"), config.repeats))
    )
    assert (known.case["epochs"], known.case["recurrent"]) == (6, "float32")
    speed = known.values["tokens_per_second"]
    assert known.values["recipe_hours"] == pytest.approx(6 * 9_000 / speed / 3600)
    assert "recipe_hours" not in other.values
