"""Named architectures and their parameter counts."""

from __future__ import annotations

import pytest
import torch

from awd_lstm import ARCHITECTURES, AWDLSTM, AWDLSTMConfig, parameter_count


def built(name: str, vocabulary_size: int) -> AWDLSTM:
    """Build a named architecture without allocating its weights."""
    with torch.device("meta"):
        return AWDLSTM(ARCHITECTURES[name](vocabulary_size))


@pytest.mark.parametrize(
    ("name", "vocabulary_size", "parameters"),
    [("awd_lstm_ptb", 10_000, 24_221_600), ("awd_lstm_wt2", 33_278, 33_556_078)],
)
def test_published_architectures_have_the_published_size(
    name: str, vocabulary_size: int, parameters: int
) -> None:
    model = built(name, vocabulary_size)
    assert parameter_count(model) == parameters
    # The softmax of the published model is tied, so its matrix is in no second parameter.
    # embedding and bias
    assert [p.shape[0] for p in model.parameters()].count(vocabulary_size) == 2


def test_the_published_variants_differ_where_the_official_commands_do() -> None:
    ptb, wt2 = ARCHITECTURES["awd_lstm_ptb"](10_000), ARCHITECTURES["awd_lstm_wt2"](33_278)
    assert (ptb.dropouti, ptb.dropouth) == (0.4, 0.25)
    assert (wt2.dropouti, wt2.dropouth) == (0.65, 0.2)
    for config in (ptb, wt2):
        assert (config.layers, config.embedding_dim, config.hidden_dim) == (3, 400, 1150)
        assert (config.dropout, config.dropoute, config.wdrop) == (0.4, 0.1, 0.5)


def test_the_variant_with_1200_units_is_wider_inside_only() -> None:
    model = built("awd_lstm_1200", 10_000)
    assert model.config.layer_sizes() == [(400, 1200), (1200, 1200), (1200, 400)]
    lstm = sum(4 * o * (i + o + 2) for i, o in [(400, 1200), (1200, 1200), (1200, 400)])
    assert parameter_count(model) == 10_000 * 401 + lstm


def test_one_layer_maps_the_embedding_to_itself() -> None:
    assert AWDLSTMConfig(5, embedding_dim=4, hidden_dim=9, layers=1).layer_sizes() == [(4, 4)]


@pytest.mark.parametrize("name", ["vocabulary_size", "embedding_dim", "hidden_dim", "layers"])
def test_sizes_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = 0 must be at least 1"):
        AWDLSTMConfig(**{"vocabulary_size": 5, name: 0})


@pytest.mark.parametrize("name", ["dropout", "dropouth", "dropouti", "dropoute", "wdrop"])
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rates_outside_the_half_open_interval_are_refused(name: str, rate: float) -> None:
    with pytest.raises(ValueError, match=f"{name} = {rate} must lie in"):
        AWDLSTMConfig(5, **{name: rate})
