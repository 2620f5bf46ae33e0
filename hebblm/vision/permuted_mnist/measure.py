"""Predictions of the methods after a task, and their hyper-parameters, chosen on samples that no task trains on."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hebblm.memory import FlatMemory
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.recall import Adapted, Stored, recall
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.result import Values, best
from hebblm.vision.setup import stage
from hebblm.vision.state import Step

Tried = dict[str, list[dict[str, float]]]
"""By method, every point with its ``accuracy`` and ``loss`` in nats on held-out samples.

The hyper-parameters: of ``ewc`` lambda; of ``mbpa-N``, with N samples stored of a task, lr, in the units of the
settings' ``mbpa_rate``; of ``hebb-N`` beta and eta, its lr being that of ``mbpa-N``.
"""


def network_alone(stream: TaskStream, name: str, model: MLP, task: int) -> Step:
    """Return what a network itself predicts on all tasks so far; ``name`` says how it was trained."""
    size = stream.settings.tested(task)
    made = torch.stack([classes_of(model.logits(stream.test(at, size)[0])) for at in range(task + 1)])
    return {name: made}, {name: {"rose": 0}}


def network_and_memory(stream: TaskStream, values: Values, model: MLP, task: int) -> Step:
    """Return what plain training predicts on all tasks so far, and MbPA and Hebb with each size of the memory.

    Args:
        stream: the samples, with sizes and constants.
        values: hyper-parameters.
        model: the network after the task.
        task: counted from 0.
    """
    predictions, numbers = network_alone(stream, "mlp", model, task)
    for size in stream.settings.stored:
        made, more = _with_memory(stream, values, model, task, size)
        predictions, numbers = {**predictions, **made}, {**numbers, **more}
    return predictions, numbers


def _stored(stream: TaskStream, model: MLP, tasks: int, size: int) -> Stored:
    """Return the memory after the first ``tasks`` tasks under a network: ``size`` samples of each, pixels as keys."""
    memory = FlatMemory(stream.dataset.train.width, device=stream.device)
    for task in range(tasks):
        memory.add(*stream.stored(task, size))
    return Stored.under(memory, model)


def _adapted(stream: TaskStream, stored: Stored, pixels: Tensor, lr: float) -> Adapted:
    """Adapt a network to the neighbours of queries (N, D) as the settings have it."""
    own = stream.settings
    return recall(stored, pixels, k=own.k, lr=lr, rate=own.mbpa_rate, steps=own.steps, eps=own.eps)


def classes_of(logits: Tensor) -> Tensor:
    """Return the likeliest class (N,) uint8 of logits (N, C), on the CPU."""
    return logits.argmax(1).to(torch.uint8).cpu()


def _with_memory(stream: TaskStream, values: Values, model: MLP, task: int, size: int) -> Step:
    """Return MbPA's and Hebb's predictions on all tasks so far, from one adaptation pass."""
    stored = _stored(stream, model, task + 1, size)
    counts = stream.counts(task + 1)
    mbpa, hebb, rose = [], [], 0
    for at in range(task + 1):
        pixels, _ = stream.test(at, stream.settings.tested(task))
        found = _adapted(stream, stored, pixels, values[f"mbpa-{size}"]["lr"])
        mbpa.append(classes_of(found.mbpa()))
        hebb.append(classes_of(found.hebb(counts, **values[f"hebb-{size}"])))
        rose += int(found.rose.sum())
    predictions = {f"mbpa-{size}": torch.stack(mbpa), f"hebb-{size}": torch.stack(hebb)}
    return predictions, {name: {"rose": rose} for name in predictions}


@torch.no_grad()
def held_out_scores(stream: TaskStream, model: MLP) -> dict[str, float]:
    """Return a network's ``accuracy`` and ``loss`` in nats on the held-out samples, as each of the tasks shows them."""
    pixels, labels = _held_out(stream, stream.settings.held_out)
    return _scores(torch.cat([model.logits(some) for some in pixels]), labels)


def tune_adaptation(stream: TaskStream, model: MLP, size: int) -> Tried:
    """Try MbPA's lambda, and with the best one Hebb's beta and eta, after the tasks that tuning runs through.

    Hebb takes over MbPA's lambda, as in the paper (its appendix), so that one pass serves both. Test samples are never
    looked at.

    Args:
        stream: the samples, with sizes and grids.
        model: the network after these tasks.
        size: samples stored of each task.
    """
    settings = stream.settings
    stored = _stored(stream, model, settings.tune_tasks, size)
    parts, labels = _held_out(stream, settings.tune_samples)
    pixels, counts = torch.cat(parts), stream.counts(settings.tune_tasks)
    mbpa: list[dict[str, float]] = []
    hebb: dict[float, list[dict[str, float]]] = {}
    with stage(f"tune MbPA-{size} and Hebb-{size}", len(settings.mbpa_lambda), "rates") as progress:
        for lr in settings.mbpa_lambda:
            found = _adapted(stream, stored, pixels, lr)
            mbpa.append({"lr": lr, **_scores(found.mbpa(), labels)})
            hebb[lr] = [
                {"beta": beta, "eta": eta, **_scores(found.hebb(counts, beta=beta, eta=eta), labels)}
                for beta, eta in itertools.product(settings.hebb_beta, settings.hebb_eta)
            ]
            progress(1)
    return {f"mbpa-{size}": mbpa, f"hebb-{size}": hebb[best(mbpa)["lr"]]}


def _held_out(stream: TaskStream, samples: int) -> tuple[list[Tensor], Tensor]:
    """Return held-out samples of the tasks of tuning: the pixels (n, D) of each, and the labels (N,) of all."""
    found = [stream.held_out(task, samples) for task in range(stream.settings.tune_tasks)]
    return [pixels for pixels, _ in found], torch.cat([labels for _, labels in found])


def _scores(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the share of right answers and the mean loss in nats of logits (N, C)."""
    accuracy = (logits.argmax(1) == labels).double().mean()
    return {"accuracy": float(accuracy), "loss": float(cross_entropy(logits.double(), labels))}
