from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.mlp import MLP, Penalty, fisher_diagonal
from hebblm.vision.permuted import TaskStream, train_task
from hebblm.vision.state import generator

from .samples import TINY, patterns

STREAM = TaskStream(patterns(), replace(TINY, test_samples=40), 1, torch.device("cpu"))
RECIPE = replace(TINY, epochs=15, batch_size=16, lr=1e-2)


def start() -> MLP:
    return MLP.initial(16, 16, 3, generator(1, "network"))


def accuracy(model: MLP, task: int) -> float:
    pixels, labels = STREAM.test(task, 40)
    return float((model.logits(pixels).argmax(1) == labels).double().mean())


def distance(one: MLP, other: MLP) -> float:
    return sum(float((a - b).square().sum()) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_learns_and_leaves_the_start_alone() -> None:
    model, before = start(), start()
    trained = train_task(model, *STREAM.train(0), RECIPE, generator=generator(1, "order"))
    assert distance(model, before) == 0
    assert accuracy(trained, 0) >= 0.9
    assert not any(parameter.requires_grad for parameter in trained.parameters())


def test_same_seed_same_network() -> None:
    one, other = (train_task(start(), *STREAM.train(0), RECIPE, generator=generator(1, "order")) for _ in range(2))
    assert distance(one, other) == 0


def test_the_penalty_keeps_what_the_first_task_needs() -> None:
    first = train_task(start(), *STREAM.train(0), RECIPE, generator=generator(1, "order"))
    fisher = fisher_diagonal(first, *STREAM.train(0), kind="labels")
    penalty = Penalty.none(first.parameters()).fold(first.parameters(), fisher)
    after = [
        train_task(
            first,
            *STREAM.train(1),
            RECIPE,
            generator=generator(1, "order"),
            penalty=penalty,
            strength=strength,
        )
        for strength in (0.0, 1000.0)
    ]
    values = [
        sum(
            float((information * (theta - centre).square()).sum())
            for information, theta, centre in zip(penalty.precisions, model.parameters(), penalty.centres, strict=True)
        )
        for model in after
    ]
    assert values[1] < values[0] / 3
    assert accuracy(after[1], 0) >= accuracy(after[0], 0)


def test_says_that_training_diverged() -> None:
    pixels, labels = STREAM.train(0)
    with pytest.raises(UserError, match=r"training diverged with lr = 0\.01"):
        train_task(start(), pixels * torch.inf, labels, RECIPE, generator=generator(1, "order"))
