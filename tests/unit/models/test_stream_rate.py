"""Dynamic evaluation without a training text: its steps, its rate, and what it may lose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.models import stream_rate
from hebblm.models.awd import AwdBase
from hebblm.models.base import Base
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.models.stream_rate import StreamRate

from ...support import toy

CONFIG = DynamicConfig("stream", segment=20)


def losses(base: Base, ids: np.ndarray) -> np.ndarray:
    return toy.alone(base, toy.stream_of(ids), UnionVocabulary(), segment=20)


def test_its_steps_are_adams_from_weights_that_are_scaled_by_the_evidence() -> None:
    """Of tensors of one weight each; Adam's means with a decay next to 1 are those over all
    steps.
    """
    origin = [torch.tensor([value], dtype=torch.float64) for value in (0.5, -2.0, 1e-9)]
    ours, plain = ([torch.nn.Parameter(q.clone()) for q in origin] for _ in range(2))
    rate, eta, moved, spread = StreamRate(origin, 0.01), 0.01, 0.0, 0.0
    groups = [{"params": [p], "lr": eta} for p in plain]
    adam = torch.optim.Adam(groups, betas=(0.0, 1 - 1e-10), eps=0.0)
    for step in range(12):
        numbers = toy.randn(step, 3, dtype=torch.float64) + torch.tensor([1.0, -0.5, 0.2])
        for own in (ours, plain):
            loss = sum(
                (number * p + (p - 1) ** 2).sum() for number, p in zip(numbers, own, strict=True)
            )
            assert isinstance(loss, torch.Tensor)
            for p, g in zip(own, torch.autograd.grad(loss, own), strict=True):
                p.grad = g
        with torch.no_grad():
            rate.step(ours, [p.grad for p in ours if p.grad is not None], origin, 20, 0.5)
            gain = 20 * sum(float((q - p) * p.grad) for p, q in zip(plain, origin, strict=True))  # type: ignore[operator]
            moved, spread = 0.9 * moved + gain, 0.9 * spread + gain**2
            factor = math.exp(0.15 * moved / math.sqrt(spread)) if spread else 1.0
            eta *= factor
            for p, q, group in zip(plain, origin, adam.param_groups, strict=True):
                p.copy_(q + factor * (p - q))
                group["lr"] = 0.5 * eta * max(abs(float(q)), 1e-3)
        adam.step()
        for p, q in zip(ours, plain, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-12)
    assert rate.eta == pytest.approx(eta)
    assert eta != 0.01


def test_weights_with_hardly_a_gradient_hardly_move() -> None:
    origin = [torch.ones(2, 50)]
    ours = [torch.nn.Parameter(torch.ones(2, 50))]
    gradient = torch.cat([torch.ones(1, 50), torch.full((1, 50), 1e-4)])
    with torch.no_grad():
        StreamRate(origin, 0.01).step(ours, [gradient], origin, 20, 1.0)
    far, near = (1 - ours[0].detach()).mean(1).tolist()
    assert 0.01 < far < 0.02
    assert near < far / 1000


def test_gradients_that_overflow_change_nothing() -> None:
    origin = [torch.ones(3)]
    ours = [torch.nn.Parameter(torch.ones(3))]
    rate = StreamRate(origin, 0.01)
    with torch.no_grad():
        rate.step(ours, [torch.tensor([1.0, torch.inf, 0.0])], origin, 20, 1.0)
    assert torch.equal(ours[0], origin[0])
    assert not rate.returns()


def test_it_finds_a_rate_where_the_first_one_is_far_too_small() -> None:
    ids = np.tile(toy.tokens(2, 100), 30)
    base = DynamicBase(toy.base_of(toy.tiny_model()), CONFIG, None)
    found, trained = losses(base, ids), losses(toy.base_of(toy.tiny_model()), ids)
    assert found[-100:].mean() < trained[-100:].mean() - 0.3
    assert base._rate is not None
    assert base._rate.eta > 4 * stream_rate.START


@pytest.fixture(scope="module")
def own_text() -> np.ndarray:
    """Return text that the tiny model made itself, so that no other weights expect less of a
    loss.
    """
    base, generator = toy.base_of(toy.tiny_model(), rows=0), torch.Generator().manual_seed(3)
    ids = [1]
    for _ in range(3000):
        probs = base.head.logits(base.read(torch.tensor(ids[-1:]))).softmax(1)
        ids.append(int(torch.multinomial(probs, 1, generator=generator)))
    return np.array(ids)


@pytest.mark.parametrize(
    ("kind", "lr"),
    [("own", stream_rate.START), ("own", 0.02), ("random", 0.02), ("turning", stream_rate.START)],
)
def test_it_is_never_far_behind_the_trained_weights(
    kind: str, lr: float, own_text: np.ndarray
) -> None:
    turning = np.concatenate(
        [np.roll(np.arange(2, 20), 7 * block)[np.arange(60) % 9] for block in range(50)]
    )
    ids = {"own": own_text, "random": toy.tokens(5, 3000, toy.SOURCE), "turning": turning}[kind]
    assert _behind(ids, DynamicConfig("stream", lr=lr, segment=20))[1000:].max() < 0.005


def test_what_it_may_lose_is_bounded_at_a_rate_at_which_it_diverges(
    own_text: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DynamicConfig("stream", lr=0.5, segment=20)
    bound = _behind(own_text, config)
    monkeypatch.setattr(stream_rate, "ALLOWED", math.inf)
    free = _behind(own_text, config)
    assert bound[-1] < 0.005 < free[-1]


def test_it_goes_on_to_the_bit_and_begins_anew() -> None:
    ids = toy.tokens(4, 200, toy.SOURCE)
    inputs, targets = torch.from_numpy(ids[:-1]), torch.from_numpy(ids[1:])
    base, other = (DynamicBase(toy.base_of(toy.tiny_model()), CONFIG, None) for _ in range(2))

    def read(one: DynamicBase, start: int) -> torch.Tensor:
        states = one.read(inputs[start : start + 20])
        one.learn(targets[start : start + 20])
        return states

    first = read(base, 0)
    read(base, 20)
    other.load_state_dict({name: value.clone() for name, value in base.state_dict().items()})
    for start in (40, 60, 80):
        assert torch.equal(read(base, start), read(other, start))
    with base.preserve_state():
        base.read(inputs[:5])
    assert torch.equal(read(base, 100), read(other, 100))
    base.reset()
    assert torch.equal(read(base, 0), first)
    assert not torch.equal(read(base, 20), first)


def test_without_a_training_text_the_rule_is_its_own() -> None:
    model = toy.tiny_model()
    squares = [p.detach().square() for p in model.parameters()]
    rules = [
        DynamicBase(AwdBase(model), DynamicConfig(), found).config.rule for found in (None, squares)
    ]
    assert rules == ["stream", "rms"]


def test_words_that_come_later_learn_as_well() -> None:
    base = DynamicBase(AwdBase(toy.tiny_model(), init="mean"), CONFIG, None)
    base.read(torch.tensor([1, 2]))
    base.learn(torch.tensor([2, 3]))
    base.grow(1)
    born = base.head.weight[-1].clone()
    for _ in range(3):
        base.read(torch.tensor([3, toy.SOURCE]))
        base.learn(torch.tensor([toy.SOURCE, toy.SOURCE]))
    assert not torch.equal(base.head.weight[-1], born)
    assert base.trained is not None
    torch.testing.assert_close(base.trained.head.weight[-1], born, atol=1e-3, rtol=1e-3)


def _behind(ids: np.ndarray, config: DynamicConfig) -> np.ndarray:
    """Mean loss so far over that of the trained weights, after each word."""
    model = toy.tiny_model()
    trained = losses(toy.base_of(model, rows=0), ids)
    found = losses(DynamicBase(toy.base_of(model, rows=0), config, None), ids)
    return (found.astype(float) - trained).cumsum() / np.arange(1, len(found) + 1)
