"""The result of permuted MNIST as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from hebblm.vision.permuted_mnist.chain import MISSING
from hebblm.vision.permuted_mnist.settings import EXPERIMENT, PermutedSettings
from hebblm.vision.result import Outcome, SeedRun, Values, at_end, spread, summary

Accuracies = list[list[float]]
"""Shares of right answers of one method with one seed; ``[t][i]`` is that on task i <= t after task t was learnt."""


def outcome_of(outcome: Outcome, settings: PermutedSettings, folder: Path) -> dict[str, Any]:
    """Write ``seed-S.safetensors`` of each seed, and return what the result says."""
    runs = outcome.runs
    tuning = {
        "seed": runs[0].seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": outcome.tuning,
    }
    return {
        "tuning": None if outcome.tuning is None else tuning,
        "at_end": at_end({"": outcome.tuning}),
        "seeds": [run.write(EXPERIMENT, folder) for run in runs],
        "methods": {name: _method(runs, name, settings) for name in runs[0].predictions},
    }


def _method(runs: Sequence[SeedRun], name: str, settings: PermutedSettings) -> dict[str, Any]:
    """Return what the result says of a method."""
    accuracies = [accuracies_of(run.predictions[name], run.labels) for run in runs]
    some = settings.curve_samples
    alike = [accuracies_of(run.predictions[name][:, :, :some], run.labels[:some]) for run in runs]
    curves = [curve_of(each) for each in alike]
    return summary(
        runs,
        name,
        _hyperparameters(runs[0].values, name, settings),
        [continual_scores(*each) for each in zip(accuracies, alike, strict=True)],
        [spread(values) for values in zip(*curves, strict=True)],
        [{"accuracy": each} for each in accuracies],
    )


def _hyperparameters(values: Values, name: str, settings: PermutedSettings) -> dict[str, float]:
    kind, _, size = name.partition("-")
    if not size:
        return dict(values.get(name, {}))
    rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
    own = values[name] if kind == "hebb" else {}
    return {rate: values[f"mbpa-{size}"]["lr"], **own, "stored": int(size)}


def accuracies_of(predictions: Tensor, labels: Tensor) -> Accuracies:
    """Return the accuracies of predictions.

    Args:
        predictions: (T, T, n) uint8; [t, i] are those on task i after task t, ``MISSING`` where none was made.
        labels: (n,) int64, the same for all tasks.
    """
    made = (predictions != MISSING).sum(2)  # (T, T)
    shares = (predictions == labels).sum(2).double() / made
    return [shares[t, : t + 1].tolist() for t in range(len(shares))]


def curve_of(accuracies: Accuracies) -> list[float]:
    """Return the mean over the tasks learnt so far, after each task (the paper's Fig. mnist)."""
    return [sum(row) / len(row) for row in accuracies]


def continual_scores(accuracies: Accuracies, alike: Accuracies) -> dict[str, float | None]:
    """Return the numbers after the last task; the latter two are None for a single one.

    ``average_accuracy`` is the mean over all tasks; ``forgetting`` how far each task but the last fell from its best so
    far, on average (Chaudhry et al. 2018); ``backward_transfer`` how far each of them rose since it was learnt, on
    average (Lopez-Paz and Ranzato 2017).

    Args:
        accuracies: on all samples that were tested, which after the last task are more than before.
        alike: on those samples alone that were tested after every task, which tell what a task changed.
    """
    *before, last = alike
    drops = [max(row[task] for row in before[task:]) - last[task] for task in range(len(before))]
    rises = [last[task] - row[task] for task, row in enumerate(before)]
    return {
        "average_accuracy": sum(accuracies[-1]) / len(last),
        "forgetting": sum(drops) / len(drops) if drops else None,
        "backward_transfer": sum(rises) / len(rises) if rises else None,
    }
