"""The results as JSON, with every seed's classes, pictures and predictions in files beside it.

Beside what every result begins with (:mod:`hebblm.vision.experiments`)::

    "tuning":  {condition: {method: [{hyper-parameters, "old", "new", "harmonic_mean", "loss"}, ...]} or null}
                   of the network's rates "harmonic_mean_reached" as well, by it or by Mixture over it
    "at_end":  [tuned values that are the least or the largest tried, as "hebb.eta (condition)", ...]
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

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hebblm.vision.new_classes.methods import values_of
from hebblm.vision.new_classes.online import points
from hebblm.vision.new_classes.reading import top1
from hebblm.vision.new_classes.setup import ClassSetup
from hebblm.vision.result import Outcome, SeedRun, at_end, over_seeds, summary

POINTS = 100  # of a curve


def outcome_of(experiment: str, outcome: Outcome, setup: ClassSetup) -> dict[str, Any]:
    """Write a file of predictions for each condition and seed, and return what the result says."""
    # A curve is by epoch, or along the stream.
    interval = None if experiment == "incremental" else setup.settings.online.interval
    conditions: dict[str, list[SeedRun]] = {}
    for run in outcome.runs:
        conditions.setdefault(run.condition, []).append(run)
    document = {
        "tuning": dict(outcome.tuning),
        "at_end": at_end(outcome.tuning),
        "seeds": [run.write(experiment, setup.folder) for run in outcome.runs],
        "methods": {
            name: {"conditions": {condition: _method(runs, name, interval) for condition, runs in conditions.items()}}
            for name in outcome.runs[0].predictions
        },
    }
    if experiment == "sensitivity":
        document["grid"] = points(setup.settings.sensitivity)
    return document


def _method(runs: Sequence[SeedRun], name: str, interval: int | None) -> dict[str, Any]:
    """Return what the result says of a method under a condition."""
    curves = [_curve(run, name, interval) for run in runs]
    return summary(
        runs,
        name,
        values_of(name, runs[0].values),
        [top1(run.predictions[name][-1], run.labels, run.drawn["new"]) for run in runs],
        [{**over_seeds(each), "at": each[0]["at"]} for each in zip(*curves, strict=True)],
        [{"curve": curve} for curve in curves],
    )


def _curve(run: SeedRun, name: str, interval: int | None) -> list[dict[str, Any]]:
    """Return accuracies after each epoch, or over the first pictures of the stream."""
    made, labels, new = run.predictions[name], run.labels, run.drawn["new"]
    if interval is not None:
        return along(made[0], labels, new, interval)
    return [{"at": at + 1, **top1(each, labels, new)} for at, each in enumerate(made)]


def along(classes: Tensor, labels: Tensor, new: Tensor, interval: int) -> list[dict[str, Any]]:
    """Return the accuracies over the first ``at`` pictures, at no more than a hundred ends of intervals."""
    ends = list(range(interval, len(labels) + 1, interval))
    ends = ends[:: -(-len(ends) // POINTS)] if ends else []
    if not ends or ends[-1] != len(labels):
        ends.append(len(labels))
    return [{"at": end, **top1(classes[:end], labels[:end], new)} for end in ends]
