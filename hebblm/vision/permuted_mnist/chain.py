"""Tasks learnt one after the other, with a state on disk after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.vision.permuted_mnist.ewc import Penalty, fisher_diagonal
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.seeds import generator
from hebblm.vision.state import load_state, save_state

PARAMETERS = ("weight", "bias", "output", "offset")
TRAINING = "training"
MISSING = 255
"""Stands for no prediction: the task had not been learnt yet, or the sample was not tested."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Predictions of one method after a task.

    Args:
        predictions: (t + 1, n) uint8 classes, task by task, of the first n test samples.
        seconds: it took, without training.
        rose: queries whose neighbours' loss was higher after their adaptation than before.
    """

    predictions: Tensor
    seconds: float
    rose: int = 0


Measure = Callable[[MLP, int], Mapping[str, Measured]]
"""From the network after task t, and t, to the predictions of every method that starts from it."""


@dataclass(slots=True)
class ChainState:
    """State of a chain of tasks.

    Args:
        model: after the last finished task.
        penalty: EWC's, None for plain training.
        done: tasks finished.
        predictions: by method, (T, T, n) uint8, ``MISSING`` where not made.
        totals: by method, seconds and queries whose neighbours' loss rose so far; by ``training`` its seconds.
    """

    model: MLP
    penalty: Penalty | None
    done: int = 0
    predictions: dict[str, Tensor] = field(default_factory=dict)
    totals: dict[str, dict[str, float]] = field(default_factory=dict)

    def count(self, name: str, seconds: float, rose: int = 0) -> None:
        """Add to a method's totals."""
        total = self.totals.setdefault(name, {"seconds": 0.0, "rose": 0})
        total["seconds"] += seconds
        total["rose"] += rose

    def save(self, path: Path, run: str) -> None:
        """Write the state."""
        tensors = _named("model", self.model.parameters())
        if self.penalty is not None:
            tensors |= _named("precision", self.penalty.precisions) | _named("centre", self.penalty.centres)
        tensors |= {f"predictions.{name}": made for name, made in self.predictions.items()}
        save_state(path, tensors, {"run": run, "done": self.done, "totals": self.totals})

    @classmethod
    def load(cls, path: Path, run: str, device: torch.device) -> ChainState | None:
        """Read a state of this run, or return None where there is none."""
        found = load_state(path, run)
        if found is None:
            return None
        tensors, record = found
        penalty = None
        if f"centre.{PARAMETERS[0]}" in tensors:
            precisions = _parameters(tensors, "precision", device)
            penalty = Penalty(precisions, _parameters(tensors, "centre", device))
        predictions = {
            name.removeprefix("predictions."): made for name, made in tensors.items() if name.startswith("predictions.")
        }
        model = MLP.of(_parameters(tensors, "model", device))
        return cls(model, penalty, record["done"], predictions, record["totals"])


def run_chain(
    stream: TaskStream,
    measure: Measure,
    *,
    tasks: int,
    strength: float | None,
    path: Path,
    run: str,
    progress: Callable[[int], None],
    skip: Callable[[int], None],
) -> ChainState:
    """Learn the tasks in turn, or go on after the last one that ``path`` has.

    Args:
        stream: the samples, with sizes and rates; its seed draws the network and the order of the samples.
        measure: called with the network after each task, which it must not change.
        tasks: how many to learn.
        strength: EWC's lambda; None trains without a penalty.
        path: the state; written after each task.
        run: hash of everything that decides about the numbers.
        progress: told after each epoch.
        skip: told how many tasks the state had already.

    Raises:
        UserError: the state is of another run or damaged, or training diverged.
    """
    settings, seed = stream.settings, stream.seed
    state = ChainState.load(path, run, stream.device)
    if state is None:
        classes, width = stream.dataset.classes, stream.dataset.train.width
        model = MLP.initial(width, settings.hidden, classes, generator(seed, "network")).to(stream.device)
        state = ChainState(model, None if strength is None else Penalty.none(model.parameters()))
    skip(state.done)
    for task in range(state.done, tasks):
        begin = time.perf_counter()
        pixels, labels = stream.train(task)
        state.model = train_task(
            state.model,
            pixels,
            labels,
            settings,
            generator=generator(seed, f"order of task {task}"),
            penalty=state.penalty,
            strength=strength or 0.0,
            progress=progress,
        )
        if state.penalty is not None:
            fisher = fisher_diagonal(state.model, pixels, labels, kind=settings.fisher)
            state.penalty = state.penalty.fold(state.model.parameters(), fisher, settings.ewc_anchor)
        state.count(TRAINING, time.perf_counter() - begin)
        for name, measured in measure(state.model, task).items():
            made = measured.predictions
            if name not in state.predictions:
                shape = (tasks, tasks, settings.test_samples)
                state.predictions[name] = torch.full(shape, MISSING, dtype=torch.uint8)
            state.predictions[name][task, : task + 1, : made.shape[1]] = made
            state.count(name, measured.seconds, measured.rose)
        state.done = task + 1
        state.save(path, run)
    return state


def _named(prefix: str, parameters: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Return the four tensors of a network, or of its size, by name."""
    return {f"{prefix}.{name}": value for name, value in zip(PARAMETERS, parameters, strict=True)}


def _parameters(tensors: Mapping[str, Tensor], prefix: str, device: torch.device) -> tuple[Tensor, ...]:
    """Undo :func:`_named`."""
    return tuple(tensors[f"{prefix}.{name}"].to(device) for name in PARAMETERS)


def train_task(
    model: MLP,
    pixels: Tensor,
    labels: Tensor,
    settings: PermutedSettings,
    *,
    generator: torch.Generator,
    penalty: Penalty | None = None,
    strength: float = 0.0,
    progress: Callable[[int], None] = lambda epochs: None,
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
        progress: told after each epoch.

    Returns:
        The network after the task.

    Raises:
        UserError: the loss ceased to be finite.
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
            raise UserError(
                f"training diverged with lr = {settings.lr:g} and penalty strength {strength:g}; lower one of them"
            )
        progress(1)
    return MLP.of(tuple(parameter.detach() for parameter in parameters))
