"""The regularisers as formulas: which entries are dropped, how the rest is scaled, what is
penalised.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from awd_lstm.regularization import (
    activation_penalty,
    connection_mask,
    drop_weight,
    embedding_dropout,
    locked_dropout,
    temporal_activation_penalty,
)
from awd_lstm.streams import Share

RATES = st.floats(0.1, 0.9)


@settings(max_examples=25, deadline=None)
@given(p=RATES, seed=st.integers(0, 999))
def test_locked_dropout_is_the_same_at_every_step(p: float, seed: int) -> None:
    torch.manual_seed(seed)
    out = locked_dropout(torch.ones(6, 3, 40, dtype=torch.float64), p, training=True)  # (T, B, D)
    assert torch.equal(out, out[:1].expand_as(out))
    kept = out[out != 0]
    assert_close(kept, torch.full_like(kept, 1 / (1 - p)))


def test_locked_dropout_differs_between_sequences_and_between_calls() -> None:
    torch.manual_seed(0)
    ones = torch.ones(2, 3, 200)
    first, second = locked_dropout(ones, 0.5, True), locked_dropout(ones, 0.5, True)
    assert not torch.equal(first[0, 0], first[0, 1])
    assert not torch.equal(first[0, 1], first[0, 2])
    assert not torch.equal(first, second)


def test_a_share_of_the_sequences_has_the_masks_that_these_have_in_the_whole_batch() -> None:
    x = torch.rand(4, 7, 30)
    torch.manual_seed(0)
    whole, after = locked_dropout(x, 0.5, True), torch.rand(1)
    for begin, end in ((0, 3), (3, 7), (2, 5)):
        torch.manual_seed(0)
        part = locked_dropout(x[:, begin:end], 0.5, True, Share(begin, end, 7))
        assert torch.equal(part, whole[:, begin:end])
        assert torch.equal(torch.rand(1), after), "what is drawn next is the same, too"


def test_locked_dropout_drops_at_its_rate_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    out = locked_dropout(torch.ones(1, 50, 2000), 0.65, True)
    assert (out == 0).double().mean().item() == pytest.approx(0.65, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)


@settings(max_examples=25, deadline=None)
@given(p=RATES, seed=st.integers(0, 999))
def test_embedding_dropout_drops_whole_words(p: float, seed: int) -> None:
    torch.manual_seed(seed)
    weight = torch.rand(60, 7, dtype=torch.float64) + 1  # (V, D), nowhere zero
    ratio = embedding_dropout(torch.arange(60), weight, p, training=True) / weight
    assert_close(ratio, ratio[:, :1].expand_as(ratio))
    dropped = ratio[:, 0] == 0
    assert_close(ratio[~dropped], torch.full_like(ratio[~dropped], 1 / (1 - p)))


def test_embedding_dropout_drops_words_at_its_rate() -> None:
    torch.manual_seed(0)
    out = embedding_dropout(torch.arange(20_000), torch.ones(20_000, 2), 0.1, True)
    assert (out[:, 0] == 0).double().mean().item() == pytest.approx(0.1, abs=0.01)


def test_weight_drop_is_elementwise_and_drawn_anew() -> None:
    torch.manual_seed(0)
    weight = torch.ones(400, 100)
    first, second = drop_weight(weight, 0.5, True), drop_weight(weight, 0.5, True)
    assert (first == 0).double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5, 0.9999999])
@pytest.mark.parametrize("shape", [(4, 1), (3, 5), (700, 301)])
def test_connections_are_dropped_at_their_rate_and_keep_the_mean(
    p: float, shape: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    mask = connection_mask(torch.empty(shape, dtype=torch.float64), p)
    assert mask.shape == shape
    kept = mask[mask > 0]
    # A coin has 2^16 sides: the rate is the nearest of them, and never one at which nothing is
    # kept.
    assert_close(kept, torch.full_like(kept, 1 / max(1 - p, 2**-16)), rtol=1e-2, atol=0)
    if mask.numel() > 1000:
        share, sigma = (mask == 0).double().mean().item(), (p * (1 - p) / mask.numel()) ** 0.5
        assert abs(share - p) < 4 * sigma + 2**-16


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_without_training_or_rate_nothing_is_touched_or_drawn(p: float, training: bool) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    x, weight = torch.ones(4, 2, 5), torch.ones(5, 3)
    assert torch.equal(locked_dropout(x, p, training), x)
    assert torch.equal(embedding_dropout(torch.arange(5), weight, p, training), weight)
    if not training:
        assert torch.equal(drop_weight(weight, p, training), weight)
        assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(2, 6), batch=st.integers(1, 3), width=st.integers(1, 4), seed=st.integers(0,
    99),
    strength=st.floats(0, 5),
)  # fmt: skip
def test_penalties_are_the_published_means(
    steps: int, batch: int, width: int, seed: int, strength: float
) -> None:
    h = torch.randn(
        steps, batch, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    values = h.tolist()
    squares = [v * v for step in values for row in step for v in row]
    changes = [
        (values[t][b][d] - values[t - 1][b][d]) ** 2
        for t in range(1, steps)
        for b in range(batch)
        for d in range(width)
    ]
    assert activation_penalty(h, strength).item() == pytest.approx(
        strength * sum(squares) / len(squares)
    )
    assert temporal_activation_penalty(h, strength).item() == pytest.approx(
        strength * sum(changes) / len(changes)
    )


def test_one_time_step_has_no_temporal_penalty() -> None:
    assert temporal_activation_penalty(torch.ones(1, 2, 3), 1.0).item() == 0.0
