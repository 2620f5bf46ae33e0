from __future__ import annotations

import pytest
import torch

from awd_lstm import AWDLSTM, parameter_count
from hebblm.errors import UserError
from hebblm.models.presets import PRESETS, WIDE_VOCABULARY, get_preset


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("vocabulary", [500, WIDE_VOCABULARY + 1])
def test_a_preset_fits_its_vocabulary_and_takes_the_seed(name: str, vocabulary: int) -> None:
    preset = get_preset(name, "ptb", vocabulary, 7)
    assert preset.model.vocabulary_size == vocabulary
    assert preset.training.seed == 7
    assert preset == get_preset(name, "ptb", vocabulary, 7)


@pytest.mark.parametrize(
    ("corpus", "vocabulary", "parameters", "batch", "epochs"),
    [("ptb", 10_000, 24_221_600, 20, 500), ("wt2", 33_278, 33_556_078, 80, 750)],
)
def test_paper_is_the_published_recipe(
    corpus: str, vocabulary: int, parameters: int, batch: int, epochs: int
) -> None:
    preset = get_preset("paper", corpus, vocabulary, 0)
    with torch.device("meta"):
        assert parameter_count(AWDLSTM(preset.model)) == parameters
    assert (preset.training.batch_size, preset.training.epochs) == (batch, epochs)
    assert (preset.training.optimizer, preset.training.lr, preset.training.clip) == (
        "sgd",
        30.0,
        0.25,
    )


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_short_runs_sample_a_wide_softmax_only(name: str) -> None:
    assert get_preset(name, "wt2", 33_278, 0).training.softmax == "sampled"
    assert get_preset(name, "ptb", 10_000, 0).training.softmax == "full"


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'huge'.*tiny, small, medium, paper"):
        get_preset("huge", "ptb", 10, 0)
