"""Predictions of the methods after a task, and their hyper-parameters, chosen on samples that no task trains on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hebblm.memory import FlatMemory
from hebblm.vision.permuted_mnist.chain import Measured
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.recall import Adapted, Stored, recall
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.result import best

Values = Mapping[str, Mapping[str, float]]
"""Hyper-parameters by method: of ``ewc`` lambda; of ``mbpa-N``, with N samples stored of a task, lr, in the units of
the settings' ``mbpa_rate``; of ``hebb-N`` beta and eta, its lr being that of ``mbpa-N``."""

Tried = dict[str, list[dict[str, float]]]
"""By method, every point with its ``accuracy`` and ``loss`` in nats on held-out samples."""


def network_alone(stream: TaskStream, name: str, model: MLP, task: int) -> dict[str, Measured]:
    """Return what a network itself predicts on all tasks so far; ``name`` says how it was trained."""
    begin = time.perf_counter()
    size = stream.settings.tested(task)
    made = [classes_of(model.logits(stream.test(at, size)[0])) for at in range(task + 1)]
    return {name: Measured(torch.stack(made), time.perf_counter() - begin)}


def network_and_memory(
    stream: TaskStream, values: Values, progress: Callable[[int], None], model: MLP, task: int
) -> dict[str, Measured]:
    """Return what plain training predicts on all tasks so far, and MbPA and Hebb with each size of the memory.

    Args:
        stream: the samples, with sizes and constants.
        values: hyper-parameters.
        progress: told how many queries were adapted.
        model: the network after the task.
        task: counted from 0.
    """
    measured = network_alone(stream, "mlp", model, task)
    for size in stream.settings.stored:
        measured |= _with_memory(stream, values, progress, model, task, size)
    return measured


def memory_of(stream: TaskStream, tasks: int, size: int) -> FlatMemory:
    """Return the memory after the first ``tasks`` tasks: ``size`` samples of each, pixels as keys."""
    memory = FlatMemory(stream.dataset.train.width, device=stream.device)
    for task in range(tasks):
        memory.add(*stream.stored(task, size))
    return memory


def adapted(
    stored: Stored, pixels: Tensor, settings: PermutedSettings, lr: float, progress: Callable[[int], None]
) -> Adapted:
    """Adapt a network to the neighbours of queries (N, D) as the settings have it."""
    return recall(
        stored,
        pixels,
        k=settings.k,
        lr=lr,
        rate=settings.mbpa_rate,
        steps=settings.steps,
        eps=settings.eps,
        progress=progress,
    )


def classes_of(logits: Tensor) -> Tensor:
    """Return the likeliest class (N,) uint8 of logits (N, C), on the CPU."""
    return logits.argmax(1).to(torch.uint8).cpu()


def _with_memory(
    stream: TaskStream, values: Values, progress: Callable[[int], None], model: MLP, task: int, size: int
) -> dict[str, Measured]:
    """Return MbPA's and Hebb's predictions on all tasks so far, from one adaptation pass."""
    begin = time.perf_counter()
    stored = Stored.under(memory_of(stream, task + 1, size), model)
    counts = stream.counts(task + 1)
    mbpa, hebb, rose, combining = [], [], 0, 0.0
    for at in range(task + 1):
        pixels, _ = stream.test(at, stream.settings.tested(task))
        found = adapted(stored, pixels, stream.settings, values[f"mbpa-{size}"]["lr"], progress)
        mbpa.append(classes_of(found.mbpa()))
        since = time.perf_counter()
        hebb.append(classes_of(found.hebb(counts, **values[f"hebb-{size}"])))
        combining += time.perf_counter() - since
        rose += int(found.rose.sum())
    seconds = time.perf_counter() - begin
    return {
        f"mbpa-{size}": Measured(torch.stack(mbpa), seconds - combining, rose),
        f"hebb-{size}": Measured(torch.stack(hebb), seconds, rose),
    }


@torch.no_grad()
def held_out_scores(stream: TaskStream, model: MLP) -> dict[str, float]:
    """Return a network's ``accuracy`` and ``loss`` in nats on the held-out samples, as each of the tasks shows them."""
    pixels, labels = _held_out(stream, stream.settings.held_out)
    return _scores(torch.cat([model.logits(some) for some in pixels]), labels)


def tune_adaptation(stream: TaskStream, model: MLP, size: int, progress: Callable[[int], None]) -> Tried:
    """Try MbPA's lambda, and with the best one Hebb's beta and eta, after the tasks that tuning runs through.

    Hebb takes over MbPA's lambda, as in the paper (its appendix), so that one pass serves both. Test samples are never
    looked at.

    Args:
        stream: the samples, with sizes and grids.
        model: the network after these tasks.
        size: samples stored of each task.
        progress: told how many queries were adapted.
    """
    settings = stream.settings
    stored = Stored.under(memory_of(stream, settings.tune_tasks, size), model)
    parts, labels = _held_out(stream, settings.tune_samples)
    pixels, counts = torch.cat(parts), stream.counts(settings.tune_tasks)
    mbpa: list[dict[str, float]] = []
    hebb: dict[float, list[dict[str, float]]] = {}
    for lr in settings.mbpa_lambda:
        found = adapted(stored, pixels, settings, lr, progress)
        mbpa.append({"lr": lr, **_scores(found.mbpa(), labels)})
        hebb[lr] = [
            {"beta": beta, "eta": eta, **_scores(found.hebb(counts, beta=beta, eta=eta), labels)}
            for beta, eta in itertools.product(settings.hebb_beta, settings.hebb_eta)
        ]
    return {f"mbpa-{size}": mbpa, f"hebb-{size}": hebb[best(mbpa)["lr"]]}


def _held_out(stream: TaskStream, samples: int) -> tuple[list[Tensor], Tensor]:
    """Return held-out samples of the tasks of tuning: the pixels (n, D) of each, and the labels (N,) of all."""
    found = [stream.held_out(task, samples) for task in range(stream.settings.tune_tasks)]
    return [pixels for pixels, _ in found], torch.cat([labels for _, labels in found])


def _scores(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the share of right answers and the mean loss in nats of logits (N, C)."""
    accuracy = (logits.argmax(1) == labels).double().mean()
    return {"accuracy": float(accuracy), "loss": float(cross_entropy(logits.double(), labels))}
