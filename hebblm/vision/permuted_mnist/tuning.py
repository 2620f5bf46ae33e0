"""Hyper-parameters chosen on samples that no task trains on; test samples are never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hebblm.vision.permuted_mnist.measure import AdaptationValues, memory_of
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.recall import Stored, recall
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.tuning import Chosen, best


@torch.no_grad()
def held_out_scores(stream: TaskStream, model: MLP, tasks: int, samples: int) -> dict[str, float]:
    """Return a network's ``accuracy`` and ``loss`` in nats on ``samples`` held-out samples of each first task."""
    held_out = [stream.held_out(task, samples) for task in range(tasks)]
    logits = torch.cat([model.logits(pixels) for pixels, _ in held_out])
    return _scores(logits, torch.cat([labels for _, labels in held_out]))


def tune_adaptation(
    stream: TaskStream,
    settings: PermutedSettings,
    model: MLP,
    size: int,
    progress: Callable[[int], None],
) -> tuple[Chosen, Chosen]:
    """Choose MbPA's lambda, and with it Hebb's beta and eta, after the tasks that tuning runs through.

    Hebb takes over MbPA's lambda, as in the paper (its appendix), so that one pass serves both.

    Args:
        stream: the samples.
        settings: sizes and grids.
        model: the network after these tasks.
        size: samples stored of each task.
        progress: told how many queries were adapted.

    Returns:
        MbPA's ``lr``, and Hebb's ``beta`` and ``eta``.
    """
    stored = Stored.under(memory_of(stream, settings.tune_tasks, size), model)
    held_out = [stream.held_out(task, settings.tune_samples) for task in range(settings.tune_tasks)]
    pixels = torch.cat([some for some, _ in held_out])
    labels = torch.cat([some for _, some in held_out])
    counts = stream.counts(settings.tune_tasks)
    mbpa: list[dict[str, float]] = []
    hebb: dict[float, list[dict[str, float]]] = {}
    for lr in settings.mbpa_lambda:
        adapted = recall(
            stored,
            pixels,
            k=settings.k,
            lr=lr,
            rate=settings.mbpa_rate,
            steps=settings.steps,
            eps=settings.eps,
            progress=progress,
        )
        mbpa.append({"lr": lr, **_scores(adapted.mbpa(), labels)})
        hebb[lr] = [
            {"beta": beta, "eta": eta, **_scores(adapted.hebb(counts, beta=beta, eta=eta), labels)}
            for beta, eta in itertools.product(settings.hebb_beta, settings.hebb_eta)
        ]
    chosen = best(mbpa)
    return chosen, best(hebb[chosen.values["lr"]])


@dataclass(frozen=True, slots=True)
class Values:
    """The hyper-parameters of a run.

    Args:
        ewc: EWC's lambda.
        adaptation: MbPA's and Hebb's, by samples stored of a task.
        record: how they were chosen, as JSON; None where nothing was left to choose.
    """

    ewc: float
    adaptation: dict[int, AdaptationValues]
    record: dict[str, Any] | None

    @classmethod
    def given(cls, settings: PermutedSettings) -> Values:
        """Return the only value of every grid."""
        values = AdaptationValues(settings.mbpa_lambda[0], settings.hebb_beta[0], settings.hebb_eta[0])
        return cls(settings.ewc_lambda[0], dict.fromkeys(settings.stored, values), None)

    @classmethod
    def chosen(cls, ewc: Chosen, adaptation: Mapping[int, tuple[Chosen, Chosen]]) -> Values:
        """Return the best values, and what was tried."""
        record: dict[str, Any] = {"ewc": ewc.tried}
        for size, (mbpa, hebb) in adaptation.items():
            record |= {f"mbpa-{size}": mbpa.tried, f"hebb-{size}": hebb.tried}
        values = {
            size: AdaptationValues(**mbpa.values, **hebb.values) for size, (mbpa, hebb) in adaptation.items()
        }
        return cls(ewc.values["lambda"], values, record)


def _scores(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the share of right answers and the mean loss in nats of logits (N, C)."""
    accuracy = (logits.argmax(1) == labels).double().mean()
    return {"accuracy": float(accuracy), "loss": float(cross_entropy(logits.double(), labels))}
