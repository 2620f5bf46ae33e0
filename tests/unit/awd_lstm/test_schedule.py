"""Segment lengths, learning rates and the trigger of NT-ASGD."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from awd_lstm import TrainingConfig
from awd_lstm.schedule import learning_rate, product_type, segment_length, starts_averaging


def published_trigger(validation_losses: list[float], nonmono: int) -> int | None:
    """Return the epoch in which the official training loop switches to ASGD, by its own loop."""
    best_val_loss: list[float] = []
    for epoch, val_loss in enumerate(validation_losses):
        if len(best_val_loss) > nonmono and val_loss > min(best_val_loss[:-nonmono]):
            return epoch
        best_val_loss.append(val_loss)
    return None


@settings(max_examples=300, deadline=None)
@given(
    losses=st.lists(st.one_of(st.floats(1, 9), st.integers(1, 4).map(float)), max_size=14),
    nonmono=st.integers(1, 6),
)
def test_averaging_starts_in_the_epoch_of_the_published_rule(
    losses: list[float], nonmono: int
) -> None:
    fired = [e for e in range(len(losses)) if starts_averaging(losses[: e + 1], nonmono)]
    assert (fired[0] if fired else None) == published_trigger(losses, nonmono)


def test_segment_lengths_are_two_normal_clusters() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(
        [segment_length(70, generator) for _ in range(8000)], dtype=torch.float64
    )
    long, short = lengths[lengths > 52], lengths[lengths <= 52]
    assert len(short) / len(lengths) == pytest.approx(0.05, abs=0.01)
    assert long.mean().item() == pytest.approx(70, abs=0.4)
    assert long.std().item() == pytest.approx(5, abs=0.3)
    assert short.mean().item() == pytest.approx(35, abs=1.5)


def test_segments_never_fall_below_five_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [segment_length(5, generator) for _ in range(500)]
    assert min(lengths) == 5
    assert max(lengths) > 10


def test_segment_lengths_come_from_their_own_generator() -> None:
    torch.manual_seed(1)
    first = [segment_length(70, torch.Generator().manual_seed(4)) for _ in range(2)]
    before = torch.get_rng_state()
    second = [segment_length(70, torch.Generator().manual_seed(4)) for _ in range(2)]
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


@given(length=st.integers(1, 200), progress=st.floats(0, 1))
def test_the_rate_is_scaled_by_the_length(length: int, progress: float) -> None:
    plain = TrainingConfig(lr=30.0, bptt=70)
    assert learning_rate(plain, progress, length) == pytest.approx(30.0 * length / 70)
    config = TrainingConfig(optimizer="adamw", lr=1e-3, bptt=35)
    at_bptt = learning_rate(config, progress, 35)
    assert learning_rate(config, progress, length) == pytest.approx(at_bptt * length / 35)


def test_adamw_warms_up_and_ends_at_its_share_of_the_rate() -> None:
    config = TrainingConfig(optimizer="adamw", lr=2e-3, bptt=35, warmup=0.1, final_lr=0.05)

    def rate(progress: float) -> float:
        return learning_rate(config, progress, 35)

    assert rate(0.0) == 0.0
    assert rate(0.05) == pytest.approx(1e-3)
    assert rate(0.1) == pytest.approx(2e-3)
    assert rate(0.55) == pytest.approx(2e-3 * (0.05 + 0.95 / 2))  # half-way down the cosine
    assert rate(1.0) == pytest.approx(1e-4)
    falling = [rate(0.1 + 0.9 * i / 50) for i in range(51)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_the_extremes_of_warm_up_are_finite(warmup: float) -> None:
    config = TrainingConfig(optimizer="adamw", lr=1.0, bptt=10, warmup=warmup, final_lr=0.5)
    assert learning_rate(config, 0.0, 10) == (1.0 if warmup == 0 else 0.0)
    assert learning_rate(config, 1.0, 10) == (0.5 if warmup == 0 else 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0), ("epochs", 0), ("bptt", 0), ("nonmono", 0), ("samples", 0), ("lr", 0.0),
        ("clip", -1.0), ("weight_decay", -1e-6), ("alpha", -1.0), ("beta", -1.0), ("seed", -1),
        ("warmup", 1.5), ("final_lr", -0.1), ("full_from", 2.0),
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} = {value} must"):
        TrainingConfig(**{name: value})


@pytest.mark.parametrize("fast", [True, False])
def test_bfloat16_is_taken_only_where_it_is_fast(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: fast)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert product_type("bfloat16", cpu) == (torch.bfloat16 if fast else torch.float32)
    assert product_type("bfloat16", cuda) == torch.bfloat16
    assert {product_type("float32", device) for device in (cpu, cuda)} == {torch.float32}
