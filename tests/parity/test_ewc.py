from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.vision import mlp as mlp_module
from hebblm.vision.mlp import MLP, Penalty, fisher_diagonal
from hebblm.vision.settings import FisherKind

WIDTH, HIDDEN, CLASSES, SAMPLES = 6, 9, 4, 25


def network(seed: int) -> MLP:
    model = MLP.initial(WIDTH, HIDDEN, CLASSES, torch.Generator().manual_seed(seed))
    return MLP.of(tuple(2 * parameter.double() for parameter in model.parameters()))


def samples(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    return pixels, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def squared_gradient(model: MLP, pixels: Tensor, label: int) -> list[Tensor]:
    """Return the squared gradient of ``log P(y | x)`` for one sample, by automatic
    differentiation.
    """
    copies = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    MLP.of(copies).logits(pixels).log_softmax(0)[label].backward()
    return [copy.grad.square() for copy in copies if copy.grad is not None]


def looped(model: MLP, pixels: Tensor, labels: Tensor, kind: FisherKind) -> list[Tensor]:
    """Form the Fisher information sample by sample."""
    totals = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for sample, label in zip(pixels, labels, strict=True):
        mixture_weights = model.logits(sample).softmax(0)
        outcomes = (
            [(int(label), 1.0)] if kind == "labels" else list(enumerate(mixture_weights.tolist()))
        )
        for outcome, share in outcomes:
            for total, square in zip(totals, squared_gradient(model, sample, outcome), strict=True):
                total += share * square / len(pixels)
    return totals


@pytest.mark.parametrize(
    ("kind", "chunk"), [("labels", 7), ("predictions", 7), ("predictions", 256)]
)
def test_fisher_equals_a_loop_over_samples(
    kind: FisherKind, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlp_module, "CHUNK", chunk)
    model, (pixels, labels) = network(1), samples(2)
    found = fisher_diagonal(model, pixels, labels, kind=kind)
    for actual, expected in zip(found, looped(model, pixels, labels, kind), strict=True):
        assert expected.max() > 0
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-14)
    other: FisherKind = "predictions" if kind == "labels" else "labels"
    assert not torch.allclose(found[0], fisher_diagonal(model, pixels, labels, kind=other)[0])


def unfolded(tasks: list[tuple[MLP, tuple[Tensor, ...]]], parameters: tuple[Tensor, ...]) -> Tensor:
    """Add up the penalties task by task."""
    parts = [
        (information * (theta - old).square()).sum()
        for model, fisher in tasks
        for theta, old, information in zip(parameters, model.parameters(), fisher, strict=True)
    ]
    return torch.stack(parts).sum()


@pytest.mark.parametrize("count", [1, 3])
def test_folded_penalties_equal_separate_ones(count: int) -> None:
    tasks = []
    penalty = Penalty.none(network(0).parameters())
    for seed in range(count):
        model, (pixels, labels) = network(seed), samples(seed)
        fisher = fisher_diagonal(model, pixels, labels, kind="labels")
        fisher[0][:, 0] = 0  # as for a pixel that is always black
        tasks.append((model, fisher))
        penalty = penalty.fold(model.parameters(), fisher)
    parameters = tuple(parameter.requires_grad_() for parameter in network(99).parameters())
    separate = 1000 / 2 * unfolded(tasks, parameters)
    expected = torch.autograd.grad(separate, parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    penalty.add_gradient(parameters, 1000)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 1 + gradient, rtol=1e-10, atol=1e-12)


def test_the_latest_anchor_has_the_same_precision_where_the_last_task_ended() -> None:
    latest = separate = Penalty.none(network(0).parameters())
    for seed in range(3):
        model, (pixels, labels) = network(seed), samples(seed)
        fisher = fisher_diagonal(model, pixels, labels, kind="predictions")
        latest = latest.fold(model.parameters(), fisher, "latest")
        separate = separate.fold(model.parameters(), fisher, "separate")
    for one, other in zip(latest.precisions, separate.precisions, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)
    for centre, parameter in zip(latest.centres, network(2).parameters(), strict=True):
        assert torch.equal(centre, parameter)
    for one, other, last, information in zip(
        gradient(latest, network(9), 7.0),
        network(9).parameters(),
        network(2).parameters(),
        latest.precisions,
        strict=True,
    ):
        torch.testing.assert_close(one, 7 * information * (other - last), rtol=1e-12, atol=0)
    nothing = gradient(latest, network(2), 7.0) + gradient(
        Penalty.none(network(1).parameters()), network(1), 1000
    )
    assert not any(part.any() for part in nothing)


def gradient(penalty: Penalty, model: MLP, strength: float) -> list[Tensor]:
    """Return what a penalty alone adds to the gradient of each parameter."""
    parameters = tuple(parameter.clone() for parameter in model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    penalty.add_gradient(parameters, strength)
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
