"""The results as JSON, with every seed's classes, pictures and predictions in files beside it.

Beside what every result begins with (:mod:`hebblm.vision.experiments`)::

    "tuning":  {condition: {method: [{hyper-parameters, "old", "new", "harmonic_mean", "loss"}, ...]} or null}
    "seeds":   [{"condition", "seed", "file", "file_sha256", "sha256", "old_classes", "pretraining"}, ...]
    "methods": {method: {"conditions": {condition: {
                   "hyperparameters", "new", "old", "overall": {"mean", "std"},
                   "curve": [{"at", "new", "old", "overall": {"mean", "std"}}, ...],
                   "seeds": [{"seed", "new", "old", "overall", "curve", "stabilized"}, ...]}}}}
    "grid":    {method: {"beta", "eta"}}, for sensitivity alone

Accuracies are shares within [0, 1], null where there is no such picture; ``at`` counts epochs in the incremental
experiment and pictures in the others. A condition is a ratio such as ``2:1``, or a number of old classes. For timing,
a method has ``hyperparameters``, and ``seconds`` and ``ratio`` with ``median``, ``min``, ``max`` and ``rounds``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.vision.new_classes.methods import values_of
from hebblm.vision.new_classes.online import points
from hebblm.vision.new_classes.setup import ClassSetup, Outcome, SeedRun
from hebblm.vision.result import spread, write_predictions

KEYS = ("new", "old", "overall")
POINTS = 100  # of a curve

Top1 = dict[str, float | None]
"""Shares of right answers by ``new``, ``old`` and ``overall``; None where there is no such picture."""


def outcome_of(experiment: str, outcome: Outcome, setup: ClassSetup) -> dict[str, Any]:
    """Write a file of predictions for each condition and seed, and return what the result says."""
    conditions: dict[str, list[SeedRun]] = {}
    for run in outcome.runs:
        conditions.setdefault(run.condition, []).append(run)
    document = {
        "tuning": dict(outcome.tuning),
        "seeds": [_write_run(experiment, run, setup.folder) for run in outcome.runs],
        "methods": {
            name: {
                "conditions": {
                    condition: _summary(runs, name, outcome.interval) for condition, runs in conditions.items()
                }
            }
            for name in outcome.runs[0].predictions
        },
    }
    if experiment == "sensitivity":
        document["grid"] = {name: dict(point) for name, point in points(setup.settings.sensitivity).items()}
    return document


def _write_run(experiment: str, run: SeedRun, folder: Path) -> dict[str, Any]:
    """Write what a seed drew and predicted; return what the result says of it."""
    name = re.sub(r"[^0-9a-z]+", "-", run.condition)
    path = folder / f"{name}-seed-{run.seed}.safetensors"
    header = {"experiment": experiment, "condition": run.condition, "seed": str(run.seed)}
    return {
        "condition": run.condition,
        "seed": run.seed,
        **write_predictions(path, header, drawn=run.drawn, labels=run.labels, predictions=run.predictions),
        "old_classes": [int(at) for at in (~run.new).nonzero()],
        "pretraining": dict(run.pretraining),
    }


def _summary(runs: list[SeedRun], name: str, interval: int | None) -> dict[str, Any]:
    """Return what the result says of a method under a condition: over the seeds, and seed by seed."""
    last = [top1(run.predictions[name][-1], run.labels, run.new) for run in runs]
    curves = [_curve(run, name, interval) for run in runs]
    return {
        "hyperparameters": values_of(name, runs[0].values),
        **over_seeds(last),
        "curve": [{"at": each[0]["at"], **over_seeds(list(each))} for each in zip(*curves, strict=True)],
        "seeds": [
            {"seed": run.seed, **scores, "curve": curve, "stabilized": run.stabilized[name]}
            for run, scores, curve in zip(runs, last, curves, strict=True)
        ],
    }


def _curve(run: SeedRun, name: str, interval: int | None) -> list[dict[str, Any]]:
    """Return accuracies after each epoch, or over the first pictures of the stream."""
    made = run.predictions[name]
    if interval is not None:
        return along(made[0], run.labels, run.new, interval)
    return [{"at": at + 1, **top1(each, run.labels, run.new)} for at, each in enumerate(made)]


def top1(classes: Tensor, labels: Tensor, new: Tensor) -> Top1:
    """Return the accuracies of predictions.

    Args:
        classes: (n,) uint8.
        labels: (n,) int64.
        new: (C,) bool.
    """
    right, is_new = classes == labels, new[labels]
    everything = torch.ones_like(is_new)
    return {
        key: float(right[part].double().mean()) if bool(part.any()) else None
        for key, part in zip(KEYS, (is_new, ~is_new, everything), strict=True)
    }


def along(classes: Tensor, labels: Tensor, new: Tensor, interval: int) -> list[dict[str, Any]]:
    """Return the accuracies over the first ``at`` pictures, at no more than a hundred ends of intervals."""
    ends = list(range(interval, len(labels) + 1, interval))
    ends = ends[:: -(-len(ends) // POINTS)] if ends else []
    if not ends or ends[-1] != len(labels):
        ends.append(len(labels))
    return [{"at": end, **top1(classes[:end], labels[:end], new)} for end in ends]


def over_seeds(scores: Sequence[Top1]) -> dict[str, dict[str, float | None] | None]:
    """Return mean and standard deviation of each accuracy; None where a seed has none."""
    return {key: spread([score[key] for score in scores]) for key in KEYS}
