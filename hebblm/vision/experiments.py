"""The experiments by name: run, and write what came out.

After what every result begins with (:func:`run_experiment`), that of an experiment on new classes
says::

    "tuning":  {condition: {method: [{hyper-parameters, "old", "new", "overall",
                   "harmonic_mean", "loss"}, ...]} or null}; of the network "overall_at_end" as
                   well, by which it is chosen, and of best's gate the weights that it learned
    "at_end":  [tuned values that are the least or the largest tried, as "hebb.eta (condition)",
                   ...]
    "seeds":   [{"condition", "seed", "file", "file_sha256", "sha256", "old_classes",
                   "pretraining"}, ...]
    "methods": {method: {"conditions": {condition: {
                   "hyperparameters", "new", "old", "overall", "harmonic_mean": {"mean", "std"},
                   "curve": [{"at", "new", "old", "overall": {"mean", "std"}}, ...],
                   "seeds": [{"seed", "new", "old", "overall", "curve", "stabilized"}, ...]}}}}
    "pairs":   {condition: [{"first", "second", "over", "new", "old", "overall":
                   {"mean", "low", "high"}}, ...]}: first minus second with its 95 % interval,
                   over seeds, or for a single one over its pictures
    "grid":    {method: {"beta", "eta"}}, for sensitivity alone

Along a stream, "late_new", "late_old" and "late_overall" are of its second half.
Accuracies are shares, null where there is no such picture; ``at`` counts epochs in the incremental
experiment and pictures in the others. A condition is a ratio such as ``2:1``, or a number of old
classes. For timing, a method has ``seconds`` and ``ratio`` with ``median``, ``min``, ``max`` and
``rounds``. Permuted MNIST has no conditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor

from hebblm.io.files import write_json
from hebblm.report.result.record import encode
from hebblm.runtime.ranks import current
from hebblm.vision.classes import ONLINE, grid_points, run_incremental, run_online, run_timing
from hebblm.vision.permuted import run_permuted
from hebblm.vision.reading import top1, values_of
from hebblm.vision.result import (
    KEYS,
    MISSING,
    RESULT_FILE,
    SCHEMA,
    Outcome,
    SeedRun,
    at_end,
    harmonic_mean,
    over_seeds,
    paired_interval,
    paired_pictures,
    spread,
)
from hebblm.vision.settings import PERMUTED_MNIST, PermutedSettings
from hebblm.vision.state import Setup

POINTS = 100  # of a curve
RUNS: dict[str, Callable[[Any], Any]] = {
    PERMUTED_MNIST: run_permuted,
    "incremental": run_incremental,
    "timing": run_timing,
    **{name: partial(run_online, experiment=name) for name in ONLINE},
}
"""From a setup to predictions, of timing to what the result says."""
PAIRS = (
    ("mbpa", "parametric"),
    ("hebb", "parametric"),
    ("best", "parametric"),
    ("hebb", "mbpa"),
    ("best", "mbpa"),
    ("best", "hebb"),
)
"""Methods whose difference a result has with its interval."""
Accuracies = list[list[float]]
"""Shares of right answers of one method with one seed; ``[t][i]`` is that on task i <= t after task
t was learnt.
"""


def run_experiment(
    experiment: str, scale: str, setup: Setup[Any], provenance: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Run an experiment, or finish an interrupted one, and return its result as JSON.

    Several ranks divide the seeds; only the first returns a result, the others None.
    """
    outcome = RUNS[experiment](setup)
    if not current().leads:
        return None
    document = {
        "schema": SCHEMA,
        "experiment": experiment,
        "scale": scale,
        "settings": asdict(setup.settings),
        "data": {"name": setup.dataset.name, "sha256": dict(setup.dataset.sha256)},
        "provenance": {**provenance, "seeds": list(setup.seeds)},
    }
    if experiment == "timing":
        document |= outcome
    else:
        document |= _body(experiment, outcome, setup)
    write_json(setup.folder / RESULT_FILE, encode(document, "result"))
    return document


def _body(experiment: str, outcome: Outcome, setup: Setup[Any]) -> dict[str, Any]:
    """Write a file of predictions for each condition and seed, and return what the result says."""
    runs = outcome.runs
    settings = setup.settings
    body: dict[str, Any] = {
        "tuning": dict(outcome.tuning),
        "at_end": at_end(outcome.tuning),
        "seeds": [run.write(experiment, setup.folder) for run in runs],
    }
    if experiment == PERMUTED_MNIST:
        body["tuning"] = _permuted_tuning(outcome, settings)
        body["methods"] = {
            name: _permuted_method(runs, name, settings) for name in runs[0].predictions
        }
        return body
    conditions: dict[str, list[SeedRun]] = {}
    for run in runs:
        conditions.setdefault(run.condition, []).append(run)
    # A curve is by epoch, or along the stream.
    interval = None if experiment == "incremental" else settings.online.interval
    methods: dict[str, dict[str, Any]] = {}
    for name in runs[0].predictions:
        by_condition = {}
        for condition, of_condition in conditions.items():
            by_condition[condition] = _class_method(of_condition, name, interval)
        methods[name] = {"conditions": by_condition}
    body["methods"] = methods
    pairs: dict[str, list[dict[str, Any]]] = {}
    for condition, of_condition in conditions.items():
        pairs[condition] = []
        for first, second in PAIRS:
            if {first, second} <= of_condition[0].predictions.keys():
                pairs[condition].append(pair(of_condition, first, second))
    body["pairs"] = pairs
    if experiment == "sensitivity":
        body["grid"] = grid_points(settings.sensitivity)
    return body


def _summary(
    runs: Sequence[SeedRun],
    name: str,
    hyperparameters: Mapping[str, float],
    scores: Sequence[Mapping[str, float | None]],
    curve: Sequence[Any],
    details: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What the result says of a method under one condition: over the seeds, and seed by seed."""
    seeds = []
    for run, score, detail in zip(runs, scores, details, strict=True):
        seeds.append({"seed": run.seed, **score, **detail, **run.counted[name]})
    return {
        "hyperparameters": hyperparameters,
        **over_seeds(scores),
        "curve": curve,
        "seeds": seeds,
    }


def _class_method(runs: Sequence[SeedRun], name: str, interval: int | None) -> dict[str, Any]:
    # 1) A curve for each seed, by epoch or along the stream.
    scores = []
    curves = []
    for run in runs:
        scores.append(_scores(run, name, late=interval is not None))
        if interval is None:
            curves.append(_by_epoch(run, name))
        else:
            curves.append(along(run.predictions[name][0], run.labels, run.drawn["new"], interval))

    # 2) Their mean, point by point.
    mean_curve = []
    for points in zip(*curves, strict=True):
        mean_curve.append({**over_seeds(points), "at": points[0]["at"]})
    values = values_of(name, runs[0].values)
    details = [{"curve": curve} for curve in curves]
    return _summary(runs, name, values, scores, mean_curve, details)


def _by_epoch(run: SeedRun, name: str) -> list[dict[str, Any]]:
    """The accuracies after each epoch that was tested, over the pictures that were predicted: the
    first ones.
    """
    curve = []
    for epoch, after in enumerate(run.predictions[name], 1):
        predicted = after[after != MISSING]
        count = len(predicted)
        if count:
            accuracies = top1(predicted, run.labels[:count], run.drawn["new"])
            curve.append({"at": epoch, **accuracies})
    return curve


def _scores(run: SeedRun, name: str, *, late: bool) -> dict[str, float | None]:
    """The accuracies of a method in the end or over a stream, and for ``late`` over its second
    half.
    """
    predicted = run.predictions[name][-1]
    labels = run.labels
    new = run.drawn["new"]
    scores: dict[str, float | None] = dict(top1(predicted, labels, new))
    scores["harmonic_mean"] = harmonic_mean(scores["old"] or 0.0, scores["new"] or 0.0)
    if late:
        half = top1(predicted[len(predicted) // 2 :], labels[len(predicted) // 2 :], new)
        scores |= {f"late_{key}": half[key] for key in KEYS}
    return scores


def pair(runs: Sequence[SeedRun], first: str, second: str) -> dict[str, Any]:
    """What the result says of the difference between two methods.

    The interval is over seeds. A single seed has none, and its interval is over its pictures, which
    says nothing about other pre-trained networks or other orders.
    """
    paired: dict[str, Any] = {
        "first": first,
        "second": second,
        "over": "pictures" if len(runs) == 1 else "seeds",
    }
    of_first = [top1(run.predictions[first][-1], run.labels, run.drawn["new"]) for run in runs]
    of_second = [top1(run.predictions[second][-1], run.labels, run.drawn["new"]) for run in runs]
    for key in KEYS:
        scores = [accuracies[key] for accuracies in of_first]
        others = [accuracies[key] for accuracies in of_second]
        if None in scores:
            paired[key] = None  # there is no such picture
            continue
        if len(runs) == 1:
            run = runs[0]
            is_new = run.drawn["new"][run.labels]
            part = {"new": is_new, "old": ~is_new, "overall": is_new | ~is_new}[key]
            first_right = run.predictions[first][-1] == run.labels
            second_right = run.predictions[second][-1] == run.labels
            mean, low, high = paired_pictures(first_right[part], second_right[part])
        else:
            mean, low, high = paired_interval(scores, others)  # type: ignore[arg-type]
        paired[key] = {"mean": mean, "low": low, "high": high}
    return paired


def along(classes: Tensor, labels: Tensor, new: Tensor, interval: int) -> list[dict[str, Any]]:
    """The accuracies over the first ``at`` pictures, at no more than a hundred ends of
    intervals.
    """
    ends = list(range(interval, len(labels) + 1, interval))
    if ends:
        ends = ends[:: math.ceil(len(ends) / POINTS)]
    if not ends or ends[-1] != len(labels):
        ends.append(len(labels))
    return [{"at": end, **top1(classes[:end], labels[:end], new)} for end in ends]


def _permuted_tuning(outcome: Outcome, settings: PermutedSettings) -> dict[str, Any] | None:
    (tried,) = outcome.tuning.values()
    if tried is None:
        return None
    return {
        "seed": outcome.runs[0].seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": tried,
    }


def _permuted_method(
    runs: Sequence[SeedRun], name: str, settings: PermutedSettings
) -> dict[str, Any]:
    few = settings.curve_samples
    scores = []
    curves = []
    details = []
    for run in runs:
        predictions = run.predictions[name]
        accuracies = accuracies_of(predictions, run.labels)
        alike = accuracies_of(predictions[:, :, :few], run.labels[:few])
        scores.append(continual_scores(accuracies, alike))
        curves.append([sum(row) / len(row) for row in alike])  # over the tasks learnt so far
        details.append({"accuracy": accuracies})
    curve = [spread(points) for points in zip(*curves, strict=True)]

    values = runs[0].values
    kind, _, size = name.partition("-")
    hyperparameters = dict(values.get(name, {}))
    if size:
        rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
        point = values[name] if kind == "hebb" else {}
        hyperparameters = {rate: values[f"mbpa-{size}"]["lr"], **point, "stored": int(size)}
    return _summary(runs, name, hyperparameters, scores, curve, details)


def accuracies_of(predictions: Tensor, labels: Tensor) -> Accuracies:
    """Accuracies of predictions (T, T, n) uint8 for labels (n,) that all tasks share.

    [t, i] are those on task i after task t, ``MISSING`` where none was made.
    """
    answered = (predictions != MISSING).sum(2)  # (T, T)
    shares = (predictions == labels).sum(2).double() / answered
    return [shares[t, : t + 1].tolist() for t in range(len(shares))]


def continual_scores(accuracies: Accuracies, alike: Accuracies) -> dict[str, float | None]:
    """Scores after the last task; the latter two are None for a single one.

    ``average_accuracy`` is the mean over all tasks, on all samples that were tested, which after
    the last task are more than before; the others are on those alone that were tested after every
    task, ``alike``. ``forgetting`` is how far each task but the last fell from its best so far, on
    average (Chaudhry et al. 2018); ``backward_transfer`` how far each of them rose since it was
    learnt, on average (Lopez-Paz and Ranzato 2017).
    """
    *before, last = alike
    drops = []
    rises = []
    for task, learnt in enumerate(before):
        best_so_far = max(row[task] for row in before[task:])
        drops.append(best_so_far - last[task])
        rises.append(last[task] - learnt[task])
    scores: dict[str, float | None] = {
        "average_accuracy": sum(accuracies[-1]) / len(last),
        "forgetting": None,
        "backward_transfer": None,
    }
    if before:
        scores["forgetting"] = sum(drops) / len(drops)
        scores["backward_transfer"] = sum(rises) / len(rises)
    return scores
