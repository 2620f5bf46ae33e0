"""What the methods predict after a task: the network itself, and MbPA and Hebb on top of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.memory import FlatMemory
from hebblm.vision.permuted_mnist.chain import Measure, Measured
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.recall import Stored, recall
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream


@dataclass(frozen=True, slots=True)
class AdaptationValues:
    """What MbPA and Hebb run with.

    Args:
        lr: MbPA's learning rate, in the units of the settings' ``mbpa_rate``.
        beta: decay of the Hebbian term's weight.
        eta: scale of the Hebbian term.
    """

    lr: float
    beta: float
    eta: float


def network_alone(stream: TaskStream, settings: PermutedSettings, name: str) -> Measure:
    """Return a measure of the network itself.

    Args:
        stream: the samples.
        settings: how many are tested.
        name: of how it was trained.
    """

    def measure(model: MLP, task: int) -> Mapping[str, Measured]:
        begin = time.perf_counter()
        size = settings.tested(task)
        made = [classes_of(model.logits(stream.test(at, size)[0])) for at in range(task + 1)]
        return {name: Measured(torch.stack(made), time.perf_counter() - begin)}

    return measure


def network_and_memory(
    stream: TaskStream,
    settings: PermutedSettings,
    values: Mapping[int, AdaptationValues],
    progress: Callable[[int], None],
) -> Measure:
    """Return a measure of plain training, and of MbPA and Hebb with each size of the memory.

    Args:
        stream: the samples.
        settings: sizes and constants.
        values: hyper-parameters by the samples stored of a task.
        progress: told how many queries were adapted.
    """
    alone = network_alone(stream, settings, "mlp")

    def measure(model: MLP, task: int) -> Mapping[str, Measured]:
        measured = dict(alone(model, task))
        for size, chosen in values.items():
            measured |= _adapted(stream, settings, model, task, size, chosen, progress)
        return measured

    return measure


def memory_of(stream: TaskStream, tasks: int, size: int) -> FlatMemory:
    """Return the memory after the first ``tasks`` tasks: ``size`` samples of each, pixels as keys."""
    memory = FlatMemory(stream.dataset.train.width, device=stream.device)
    for task in range(tasks):
        memory.add(*stream.stored(task, size))
    return memory


def classes_of(logits: Tensor) -> Tensor:
    """Return the likeliest class (N,) uint8 of logits (N, C), on the CPU."""
    return logits.argmax(1).to(torch.uint8).cpu()


def _adapted(
    stream: TaskStream,
    settings: PermutedSettings,
    model: MLP,
    task: int,
    size: int,
    chosen: AdaptationValues,
    progress: Callable[[int], None],
) -> dict[str, Measured]:
    """Return MbPA's and Hebb's predictions on all tasks so far, from one adaptation pass."""
    begin = time.perf_counter()
    stored = Stored.under(memory_of(stream, task + 1, size), model)
    counts = stream.counts(task + 1)
    mbpa, hebb, rose, combining = [], [], 0, 0.0
    for at in range(task + 1):
        adapted = recall(
            stored,
            stream.test(at, settings.tested(task))[0],
            k=settings.k,
            lr=chosen.lr,
            rate=settings.mbpa_rate,
            steps=settings.steps,
            eps=settings.eps,
            progress=progress,
        )
        mbpa.append(classes_of(adapted.mbpa()))
        since = time.perf_counter()
        hebb.append(classes_of(adapted.hebb(counts, beta=chosen.beta, eta=chosen.eta)))
        combining += time.perf_counter() - since
        rose += int(adapted.rose.sum())
    seconds = time.perf_counter() - begin
    return {
        f"mbpa-{size}": Measured(torch.stack(mbpa), seconds - combining, rose),
        f"hebb-{size}": Measured(torch.stack(hebb), seconds, rose),
    }
