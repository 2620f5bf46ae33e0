"""Tasks learnt one after the other, with a state on disk after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from hebblm.tensors import placed
from hebblm.vision.errors import DivergedError
from hebblm.vision.permuted_mnist.ewc import Penalty, fisher_diagonal
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.seeds import generator
from hebblm.vision.state import Step, summed, take_steps

PARAMETERS = ("weight", "bias", "output", "offset")
TRAINING = "training"
MISSING = 255
"""Stands for no prediction: the task had not been learnt yet, or the sample was not tested."""


Measure = Callable[[MLP, int], Step]
"""From the network after task t, and t, to every method that starts from it: predictions (t + 1, n) uint8, task by task
of the first n test samples, and how many queries' neighbours' loss ``rose`` by their adaptation."""


class Chain:
    """Network that learns the tasks of a stream in turn.

    Args:
        stream: the samples, with sizes and rates; its seed draws the network and the order of the samples.
        strength: EWC's lambda; None trains without a penalty.
    """

    def __init__(self, stream: TaskStream, strength: float | None) -> None:
        settings, dataset = stream.settings, stream.dataset
        drawn = MLP.initial(dataset.train.width, settings.hidden, dataset.classes, generator(stream.seed, "network"))
        self.model = drawn.to(stream.device)
        self._penalty = None if strength is None else Penalty.none(self.model.parameters())
        self._stream, self._strength = stream, strength or 0.0

    def learn(self, task: int) -> None:
        """Learn a task, counted from 0.

        Raises:
            DivergedError: training diverged.
        """
        settings, (pixels, labels) = self._stream.settings, self._stream.train(task)
        self.model = train_task(
            self.model,
            pixels,
            labels,
            settings,
            generator=generator(self._stream.seed, f"order of task {task}"),
            penalty=self._penalty,
            strength=self._strength,
        )
        if self._penalty is not None:
            fisher = fisher_diagonal(self.model, pixels, labels, kind=settings.fisher)
            self._penalty = self._penalty.fold(self.model.parameters(), fisher, settings.ewc_anchor)

    def tensors(self) -> dict[str, Tensor]:
        """Return the network and the penalty by name."""
        groups: dict[str, tuple[Tensor, ...]] = {"model": self.model.parameters()}
        if self._penalty is not None:
            groups |= {"precision": self._penalty.precisions, "centre": self._penalty.centres}
        return {
            f"{group}.{name}": value
            for group, values in groups.items()
            for name, value in zip(PARAMETERS, values, strict=True)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Undo :meth:`tensors`."""

        def group(prefix: str) -> tuple[Tensor, ...]:
            return tuple(placed(tensors[f"{prefix}.{name}"], self._stream.device) for name in PARAMETERS)

        self.model = MLP.of(group("model"))
        if self._penalty is not None:
            self._penalty = Penalty(group("precision"), group("centre"))

    def run(
        self, measure: Measure, title: str, *, tasks: int, path: Path, run: str
    ) -> tuple[dict[str, Tensor], dict[str, dict[str, float]]]:
        """Learn the tasks in turn, or go on after the last one that ``path`` has.

        Args:
            measure: called with the network after each task, which it must not change.
            title: of the bar.
            tasks: how many to learn.
            path: the state; written after each task.
            run: hash of everything that decides about the numbers.

        Returns:
            By method, predictions (T, T, n) uint8, ``MISSING`` where not made; by method, queries whose neighbours'
            loss rose, and by ``training`` its seconds.

        Raises:
            UserError: the state is of another run or damaged, or training diverged.
        """
        settings = self._stream.settings

        def step(task: int) -> Step:
            begin = time.perf_counter()
            self.learn(task)
            seconds = time.perf_counter() - begin
            predictions, numbers = measure(self.model, task)
            whole = {}
            for name, made in predictions.items():
                whole[name] = torch.full((settings.tasks, settings.test_samples), MISSING, dtype=torch.uint8)
                whole[name][: task + 1, : made.shape[1]] = made
            return whole, {TRAINING: {"seconds": seconds}, **numbers}

        predictions, taken = take_steps(path, run, tasks, step, learner=self, title=title)
        return predictions, summed(taken)


def train_task(
    model: MLP,
    pixels: Tensor,
    labels: Tensor,
    settings: PermutedSettings,
    *,
    generator: torch.Generator,
    penalty: Penalty | None = None,
    strength: float = 0.0,
) -> MLP:
    """Minimise the mean cross-entropy, plus EWC's penalty where there is one, by Adam with a fresh state.

    Args:
        model: the network to start from, which stays as it is.
        pixels: (N, D).
        labels: (N,) int64.
        settings: epochs, each in an order of its own, batch size and Adam's learning rate.
        generator: of the orders.
        penalty: on leaving the values that earlier tasks need.
        strength: lambda of the penalty.

    Returns:
        The network after the task.

    Raises:
        DivergedError: the loss ceased to be finite.
    """
    parameters = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    trained = MLP.of(parameters)
    optimizer = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
    for _ in range(settings.epochs):
        order = torch.randperm(len(pixels), generator=generator).to(pixels.device)
        total = pixels.new_zeros(())
        for batch in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(trained.logits(pixels[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            if penalty is not None:
                penalty.add_gradient(parameters, strength)
            optimizer.step()
            total += loss.detach()
        if not bool(total.isfinite()):
            raise DivergedError(
                f"training diverged with lr = {settings.lr:g} and penalty strength {strength:g}; lower one of them"
            )
    return MLP.of(tuple(parameter.detach() for parameter in parameters))
