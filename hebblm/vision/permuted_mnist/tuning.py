"""Hyper-parameters chosen on samples that no task trains on; test samples are never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hebblm.vision.permuted_mnist.measure import adapted, memory_of
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.recall import Stored
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.result import best

Tried = dict[str, list[dict[str, float]]]
"""By method, every point with its ``accuracy`` and ``loss`` in nats on held-out samples."""


@torch.no_grad()
def held_out_scores(stream: TaskStream, model: MLP) -> dict[str, float]:
    """Return a network's ``accuracy`` and ``loss`` in nats on the held-out samples, as each of the tasks shows them."""
    pixels, labels = _held_out(stream, stream.settings.held_out)
    return _scores(torch.cat([model.logits(some) for some in pixels]), labels)


def tune_adaptation(stream: TaskStream, model: MLP, size: int, progress: Callable[[int], None]) -> Tried:
    """Try MbPA's lambda, and with the best one Hebb's beta and eta, after the tasks that tuning runs through.

    Hebb takes over MbPA's lambda, as in the paper (its appendix), so that one pass serves both.

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
