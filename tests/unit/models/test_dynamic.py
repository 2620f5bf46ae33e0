from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as nn

from awd_lstm import detach
from hebblm.adapt.settings import changed
from hebblm.errors import UserError
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.models.awd import AwdBase, AwdModel
from hebblm.models.dynamic import DynamicBase, DynamicConfig, with_rate
from hebblm.models.update import MEASURED

from ...support import toy


@pytest.mark.parametrize("every", [6, 20])
@pytest.mark.parametrize("rule", ["sgd", "rms"])
def test_is_the_update_of_krause_and_others(rule: str, every: int) -> None:
    eta, lam, epsilon, segment = 0.05, 0.3, 0.01, 15
    config = DynamicConfig(rule, lr=eta, decay=lam, epsilon=epsilon, segment=segment)  # type: ignore[arg-type]
    trained = toy.tiny_model().double()
    squares = [
        toy.randn(i, *p.shape, dtype=torch.float64).square()
        for i, p in enumerate(trained.parameters())
    ]
    base = DynamicBase(AwdBase(trained), config, squares if rule == "rms" else None)
    stream = toy.stream_of(toy.tokens(0, 100, toy.SOURCE), words=toy.SOURCE)
    found = toy.alone(base, stream, UnionVocabulary(), segment=every)

    model, expected = toy.tiny_model().double(), []
    parameters = list(model.parameters())
    theta_0 = [p.detach().clone() for p in parameters]
    rms = [s.sqrt() for s in squares]
    average = sum(r.mean() for r in rms) / len(rms)
    state = model.initial_state(1)
    for start in range(0, 100, every):
        inputs, targets = (
            torch.from_numpy(x[start : start + every]) for x in (stream.inputs, stream.targets)
        )
        share = min(len(inputs) / segment, 1)
        out = model(inputs[None], detach(state))
        state = out.state
        losses = nn.cross_entropy(model.logits(out.hidden[0]), targets, reduction="none")
        expected += losses.tolist()
        gradients = torch.autograd.grad(losses.mean(), parameters)
        for p, g, origin, r in zip(parameters, gradients, theta_0, rms, strict=True):
            theta = p.detach().clone()
            if rule == "sgd":
                new = theta - share * (eta * g - lam * (origin - theta))
            else:
                l2_to_base = (lam * r / average).clamp(max=1)
                new = theta - share * (eta * g / (r + epsilon) - l2_to_base * (origin - theta))
            p.data.copy_(new)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for p, q in zip(parameters, base.parameters().values(), strict=True):
        assert torch.allclose(p, q, atol=1e-11, rtol=0)


@pytest.mark.parametrize("rule", ["sgd", "rms"])
def test_without_rate_and_decay_it_is_the_fixed_base_bit_for_bit(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy.tiny_model()
    config = DynamicConfig(rule, lr=0.0, decay=0.0)  # type: ignore[arg-type]
    squares = [p.detach().square() for p in model.parameters()] if rule == "rms" else None
    stream = toy.stream_of(toy.tokens(1, 120))
    fixed = toy.alone(toy.base_of(model), stream, UnionVocabulary(), segment=30)
    # keeps the graph, for which torch takes another kernel, but never learns
    still = toy.base_of(model, lr=1.0)
    monkeypatch.setattr(still, "learn", lambda targets: None)
    expected = toy.alone(still, stream, UnionVocabulary(), segment=30)
    base = DynamicBase(toy.base_of(model), config, squares)
    found = toy.alone(base, stream, UnionVocabulary(), segment=30)
    assert np.array_equal(found, expected)
    np.testing.assert_allclose(found, fixed, atol=1e-5)


def test_it_learns_and_reset_restores_bit_for_bit() -> None:
    stream = toy.stream_of(np.tile(toy.tokens(2, 40), 4))
    base = DynamicBase(
        toy.base_of(toy.tiny_model()), DynamicConfig("sgd", lr=0.5, decay=0.0, segment=20), None
    )
    first = toy.alone(base, stream, UnionVocabulary(), segment=20)
    assert first[-40:].mean() < first[:40].mean() - 0.1
    base.reset()
    again = toy.alone(base, stream, UnionVocabulary(), segment=20)
    assert np.array_equal(first, again)


@pytest.mark.parametrize("rule", ["sgd", "rms"])
def test_rows_that_come_later_decay_to_their_initial_value(rule: str) -> None:
    model = toy.tiny_model()
    squares = [p.detach().square() + 0.1 for p in model.parameters()] if rule == "rms" else None
    config = DynamicConfig(rule, lr=0.1, decay=1.0)  # type: ignore[arg-type]
    base = DynamicBase(own := AwdBase(model, init="mean"), config, squares)
    base.read(torch.tensor([1, 2]))
    base.learn(torch.tensor([2, 3]))
    moved = own.model.embedding[: toy.SOURCE].detach().clone()
    base.grow(2)
    assert torch.equal(own.model.embedding[: toy.SOURCE], moved)
    born = own.model.embedding[toy.SOURCE :].detach().clone()
    base.read(torch.tensor([3, toy.SOURCE]))
    base.learn(torch.tensor([toy.SOURCE, toy.SOURCE + 1]))
    after = own.model.embedding[toy.SOURCE :].detach()
    assert after.shape == (2, toy.DIM)
    assert not torch.equal(after, born)
    assert torch.allclose(base._origin[0][toy.SOURCE :], born)


def test_gradient_statistics_are_the_mean_square_over_segments() -> None:
    model, ids = toy.tiny_model().double(), toy.tokens(3, 500, toy.SOURCE)
    found = AwdModel(model, Path("none"), "checkpoint", "0").mean_squares(ids[:400], 7)
    rows = ids[:400].reshape(20, 20)
    sums = [torch.zeros_like(p) for p in model.parameters()]
    state = model.initial_state(20)
    for start in (0, 7, 14):
        stop = min(start + 7, 19)
        out = model(torch.from_numpy(rows[:, start:stop]), detach(state))
        state = out.state
        targets = torch.from_numpy(rows[:, start + 1 : stop + 1].reshape(-1))
        loss = nn.cross_entropy(model.logits(out.hidden).reshape(-1, toy.SOURCE), targets)
        for total, g in zip(sums, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            total += g.square() / 3
    assert all(
        torch.allclose(a, b, rtol=1e-9, atol=1e-18) for a, b in zip(found, sums, strict=True)
    )


@pytest.mark.parametrize("rule", ["sgd", "rms"])
def test_a_measured_rate_is_predicted_to_gain_as_much_on_every_network(rule: str) -> None:
    squares = [toy.randn(7, 30, 4).square(), toy.randn(8, 5).square()]
    config = DynamicConfig(rule, lr=MEASURED, gain=0.2)  # type: ignore[arg-type]
    for times in (1.0, 100.0):
        larger = [times * part for part in squares]
        found = with_rate(config, larger)
        steps = [
            part if rule == "sgd" else part / (part.sqrt() + config.epsilon) for part in larger
        ]
        gain = float(found.lr) * sum(float(step.sum()) for step in steps)
        assert gain == pytest.approx(0.2, rel=0.05)  # the rate has two digits
        assert with_rate(found, None) == found
    assert with_rate(config, [torch.zeros(3)]).lr == 0.0


@pytest.mark.parametrize(
    ("field", "value"), [("lr", -1.0), ("lr", "fast"), ("decay", 1.5), ("segment", 0)]
)
def test_values_out_of_range_are_refused(field: str, value: float | str) -> None:
    with pytest.raises(UserError, match=f"dynamic.{field} = {value} must be"):
        changed("dynamic", DynamicConfig(), {field: value})
