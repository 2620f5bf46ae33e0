from __future__ import annotations

import numpy as np
import pytest
import torch

from hebblm.adapt.methods.gated import GatedMixture, MixtureGatedConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.tuning import gate as module
from hebblm.tuning.gate import GateFeatures, learn_gate

from ...support import toy


def problem(count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return losses of a memory that is right where a feature is small, and three features."""
    rng = np.random.default_rng(0)
    features = np.stack([rng.normal(3, 2, count), rng.normal(size=count), np.full(count, 0.7)], axis=1)
    base = rng.exponential(3, count)
    memory = np.where(features[:, 0] + rng.normal(size=count) < 3, 0.5, np.inf)
    return memory, base, features


def plain_losses(memory: np.ndarray, base: np.ndarray, features: np.ndarray, bias: float, w: np.ndarray):  # type: ignore[no-untyped-def]
    share = 1 / (1 + np.exp(-(bias + features @ w)))
    return -np.log(share * np.exp(-memory) + (1 - share) * np.exp(-base))


def test_the_losses_are_those_of_the_gate_and_beat_every_constant_share() -> None:
    memory, base, features = problem()
    learned = learn_gate(memory, base, features)
    expected = plain_losses(memory, base, features, learned.bias, learned.coefficients)
    np.testing.assert_allclose(learned.losses, expected, rtol=1e-9)
    constant = min(plain_losses(memory, base, features, bias, np.zeros(3)).mean() for bias in np.linspace(-4, 4, 81))
    assert learned.losses.mean() < constant - 0.05
    assert learned.coefficients[0] < 0
    assert learned.coefficients[2] == 0, "a feature that never changes has nothing to say"


def test_the_search_ends_where_the_gradient_vanishes() -> None:
    memory, base, features = problem()
    learned = learn_gate(memory, base, features[:, :2])
    parameters = torch.tensor([learned.bias, *learned.coefficients], dtype=torch.float64, requires_grad=True)
    share = (parameters[0] + torch.from_numpy(features[:, :2]) @ parameters[1:]).sigmoid()
    mixed = share * torch.from_numpy(np.exp(-memory)) + (1 - share) * torch.from_numpy(np.exp(-base))
    (-mixed.log().mean()).backward()
    assert parameters.grad is not None
    assert parameters.grad.abs().max() < 1e-4


def test_the_gradient_is_that_of_automatic_differentiation() -> None:
    memory, base, features = problem(30)
    design = np.concatenate([np.ones((30, 1)), features], axis=1)
    weights = np.asarray([0.3, -0.2, 0.5, 0.1])
    losses, gradient = module._loss_and_gradient(memory, base, design, weights)
    w = torch.tensor(weights, requires_grad=True)
    share = (torch.from_numpy(design) @ w).sigmoid()
    mean = -(share * torch.from_numpy(np.exp(-memory)) + (1 - share) * torch.from_numpy(np.exp(-base))).log().mean()
    mean.backward()
    assert float(losses.mean()) == pytest.approx(float(mean.detach()), rel=1e-12)
    assert w.grad is not None
    np.testing.assert_allclose(gradient, w.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_tokens_without_neighbours_keep_the_bases_loss() -> None:
    memory, base, features = problem()
    features[::7, 0] = np.inf
    learned = learn_gate(memory, base, features)
    np.testing.assert_array_equal(learned.losses[::7], base[::7])
    kept = np.isfinite(features[:, 0])
    alone = learn_gate(memory[kept], base[kept], features[kept])
    np.testing.assert_array_equal(learned.losses[kept], alone.losses)
    none = learn_gate(memory[:3], base[:3], np.full((3, 2), np.inf))
    np.testing.assert_array_equal(none.losses, base[:3])
    assert none.coefficients.tolist() == [0, 0]


def test_what_was_learned_is_what_the_method_scores() -> None:
    stream = toy.stream_of(toy.tokens(0, 150))
    theta = 0.6

    features = GateFeatures((0.3, theta), "relative")
    rules = {"base": Unadapted(), "memory": Mixture(MixtureConfig(theta, 1.0))}
    nll = toy.losses_of(rules, stream, features)
    learned = learn_gate(nll["memory"], nll["base"], features.features(theta))
    distance, entropy, peak = learned.coefficients.tolist()
    config = MixtureGatedConfig(theta, learned.bias, distance, entropy, peak)
    found = toy.losses_of({"gated": GatedMixture(config)}, stream)["gated"]
    np.testing.assert_allclose(found, learned.losses, atol=1e-4)
    assert found.mean() < min(nll["base"].mean(), nll["memory"].mean())
