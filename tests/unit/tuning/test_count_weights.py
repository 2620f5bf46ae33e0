from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt.methods.hebb import RANGES, Hebb, HebbConfig, HebbLearnedConfig
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.tuning import count_weights as module
from hebblm.tuning.count_weights import TermObserver, Terms, learn_weights

from ...support import toy

MBPA = MbpaConfig("sgd", lr=0.3, steps=2, rate="guarded", eps=1e-3, scale="absolute", pull=0.0, weight=1.0)
HEBB = HebbConfig(closeness="max", counts="memory", scale="absolute")
ETA = 0.8


def problem(tokens: int = 300, labels: int = 6) -> Terms:
    """Return labels of which those seen once are likelier than their logits say, and those seen often less so."""
    rng = np.random.default_rng(0)
    token = np.repeat(np.arange(tokens), labels)
    ranges = np.tile([0, 1, 2, 4, 6, 7], tokens)[: tokens * labels]
    adapted = rng.normal(-2, 1, len(token))
    summed = rng.exponential(2, len(token))
    chosen = rng.random(tokens)
    hit = np.zeros((tokens, labels), dtype=bool)
    hit[chosen < 0.5, 0] = True
    hit[(chosen > 0.5) & (chosen < 0.6), 4] = True
    target = np.where(hit.any(1), (adapted.reshape(hit.shape) * hit).sum(1), rng.normal(-1, 1, tokens))
    return Terms(
        token=token,
        adapted=adapted,
        delta=rng.normal(0, 0.3, len(token)),
        summed=summed,
        range=ranges,
        hit=hit.ravel(),
        rest=rng.normal(1, 0.5, tokens),
        target=target,
    )


def plain_losses(terms: Terms, eta: float, steps: torch.Tensor) -> torch.Tensor:
    """Return the losses (T,), one token after the other."""
    losses = []
    for index in range(len(terms.rest)):
        rows = np.flatnonzero(terms.token == index)
        delta, summed = (torch.from_numpy(values[rows]) for values in (terms.delta, terms.summed))
        weights = steps[terms.range[rows]]
        logits = torch.from_numpy(terms.adapted[rows]) - weights * delta + weights * eta * summed
        every = torch.cat([logits, torch.tensor([terms.rest[index]], dtype=torch.float64)])
        own = logits[terms.hit[rows]]
        losses.append(every.logsumexp(0) - (own[0] if len(own) else terms.target[index]))
    return torch.stack(losses)


def objective(losses: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    jumps = (steps[1:] - steps[:-1]) / module.STEP
    return (losses.sum() + jumps.square().sum() / 2) / len(losses)


def test_losses_and_gradient_are_those_of_automatic_differentiation() -> None:
    terms = problem(40)
    values = np.asarray([0.1, 0.9, 0.4, 0.3, 0.6, 0.2, 0.8, 0.5])
    gain = ETA * terms.summed - terms.delta
    mean, gradient = module._objective(terms, gain, values)
    steps = torch.tensor(values, requires_grad=True)
    expected = objective(plain_losses(terms, ETA, steps), steps)
    torch.autograd.backward(expected)
    assert mean == pytest.approx(float(expected.detach()), rel=1e-12)
    assert steps.grad is not None
    np.testing.assert_allclose(gradient, steps.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_weights_are_the_best_within_their_bounds() -> None:
    terms = problem()
    weights, found = learn_weights(terms, ETA)
    steps = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    losses = plain_losses(terms, ETA, steps)
    torch.autograd.backward(objective(losses, steps))
    np.testing.assert_allclose(found, losses.detach().numpy(), rtol=1e-12)
    assert steps.grad is not None
    for value, slope in zip(weights, steps.grad.tolist(), strict=True):
        pushed = (value == 0 and slope > 0) or (value == 1 and slope < 0)
        assert pushed or abs(slope) < 1e-4, "the loss is convex: no slope is left but at a bound"
    assert weights[0] > weights[7]


def test_a_range_of_which_little_was_seen_follows_its_neighbours() -> None:
    steps, _ = learn_weights(problem(), ETA)
    assert steps[3] == pytest.approx((steps[2] + steps[4]) / 2, abs=0.02), "no label of it was met"
    few, many = (learn_weights(problem(tokens), ETA)[0] for tokens in (3, 300))
    assert np.ptp(few) < np.ptp(many)


STREAM = toy.stream_of(toy.tokens(0, 200))


@pytest.mark.parametrize("gate", ["gated", "literal"])
def test_equal_weights_are_those_of_the_constant_variant_and_weights_of_one_those_of_no_decay(
    gate: str,
) -> None:
    config = replace(HEBB, eta=ETA, gate=gate, constant=0.4, beta=0.0)
    found = toy.losses_of(
        {
            "equal": Hebb(config, MBPA, steps=(0.4,) * 8), "v3": Hebb(config, MBPA, "v3"),
            "ones": Hebb(config, MBPA, steps=(1.0,) * 8), "beta": Hebb(config, MBPA),
        },
        STREAM,
    )  # fmt: skip
    if gate == "gated":  # the constant variant shrinks classes that were never seen too
        np.testing.assert_allclose(found["equal"], found["v3"], atol=1e-6)
    np.testing.assert_allclose(found["ones"], found["beta"], atol=1e-6)
    assert abs(found["ones"] - found["equal"]).max() > 0.01


def test_what_was_learned_is_what_the_method_scores() -> None:
    noted = TermObserver(MBPA, HEBB)
    nll = toy.losses_of({"mbpa": Mbpa(MBPA)}, STREAM, noted)
    weights, losses = learn_weights(noted.terms(), ETA)
    config = HebbLearnedConfig(ETA, "max", "absolute", **dict(zip(RANGES, weights, strict=True)))
    rule = Hebb(config.over(HEBB), MBPA, steps=config.steps)
    betas = {f"{beta}": Hebb(replace(HEBB, eta=ETA, beta=beta), MBPA) for beta in (0.0, 0.5, 0.9)}
    found = toy.losses_of({"learned": rule, **betas}, STREAM)
    np.testing.assert_allclose(found["learned"], losses, atol=1e-5)
    assert found["learned"].mean() < min(found[name].mean() for name in betas)
    assert found["learned"].mean() < nll["mbpa"].mean()


def test_tokens_without_a_label_leave_the_weights_where_they_begin() -> None:
    some, none = problem(tokens=3), np.zeros(0)
    terms = Terms(none.astype(int), none, none, none, none.astype(int), none.astype(bool), some.rest, some.target)
    weights, losses = learn_weights(terms, ETA)
    assert weights.tolist() == [weights[0]] * module.RANGES
    np.testing.assert_allclose(losses, some.rest - some.target)
