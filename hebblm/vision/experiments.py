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
        **(outcome if experiment == "timing" else _body(experiment, outcome, setup)),
    }
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
    body["methods"] = {
        name: {
            "conditions": {
                condition: _class_method(of_condition, name, interval)
                for condition, of_condition in conditions.items()
            }
        }
        for name in runs[0].predictions
    }
    body["pairs"] = {
        condition: [
            pair(of_condition, first, second)
            for first, second in PAIRS
            if {first, second} <= of_condition[0].predictions.keys()
        ]
        for condition, of_condition in conditions.items()
    }
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
    by_seed = zip(runs, scores, details, strict=True)
    return {
        "hyperparameters": hyperparameters,
        **over_seeds(scores),
        "curve": curve,
        "seeds": [
            {"seed": run.seed, **score, **detail, **run.counted[name]}
            for run, score, detail in by_seed
        ],
    }


def _class_method(runs: Sequence[SeedRun], name: str, interval: int | None) -> dict[str, Any]:
    curves = []
    for run in runs:
        predicted = run.predictions[name]
        new = run.drawn["new"]
        if interval is None:
            # the first of them, as many as were predicted
            tested = [(at, after[after != MISSING]) for at, after in enumerate(predicted, 1)]
            curves.append(
                [
                    {"at": at, **top1(first, run.labels[: len(first)], new)}
                    for at, first in tested
                    if len(first)
                ]
            )
        else:
            curves.append(along(predicted[0], run.labels, new, interval))
    return _summary(
        runs,
        name,
        values_of(name, runs[0].values),
        [_scores(run, name, late=interval is not None) for run in runs],
        [{**over_seeds(points), "at": points[0]["at"]} for points in zip(*curves, strict=True)],
        [{"curve": curve} for curve in curves],
    )


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
    for key in KEYS:
        scores = [
            [top1(run.predictions[name][-1], run.labels, run.drawn["new"])[key] for run in runs]
            for name in (first, second)
        ]
        if None in scores[0]:
            paired[key] = None  # there is no such picture
            continue
        if len(runs) == 1:
            (run,) = runs
            is_new = run.drawn["new"][run.labels]
            part = {"new": is_new, "old": ~is_new, "overall": is_new | ~is_new}[key]
            right = [(run.predictions[name][-1] == run.labels)[part] for name in (first, second)]
            interval = paired_pictures(right[0], right[1])
        else:
            interval = paired_interval(scores[0], scores[1])  # type: ignore[arg-type]
        paired[key] = dict(zip(("mean", "low", "high"), interval, strict=True))
    return paired


def along(classes: Tensor, labels: Tensor, new: Tensor, interval: int) -> list[dict[str, Any]]:
    """The accuracies over the first ``at`` pictures, at no more than a hundred ends of
    intervals.
    """
    ends = list(range(interval, len(labels) + 1, interval))
    ends = ends[:: -(-len(ends) // POINTS)] if ends else []
    if not ends or ends[-1] != len(labels):
        ends.append(len(labels))
    return [{"at": end, **top1(classes[:end], labels[:end], new)} for end in ends]


def _permuted_tuning(outcome: Outcome, settings: PermutedSettings) -> dict[str, Any] | None:
    (tried,) = outcome.tuning.values()
    return tried and {
        "seed": outcome.runs[0].seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": tried,
    }


def _permuted_method(
    runs: Sequence[SeedRun], name: str, settings: PermutedSettings
) -> dict[str, Any]:
    accuracies = [accuracies_of(run.predictions[name], run.labels) for run in runs]
    few = settings.curve_samples
    alike = [accuracies_of(run.predictions[name][:, :, :few], run.labels[:few]) for run in runs]
    # over the tasks learnt so far
    curves = [[sum(row) / len(row) for row in rows] for rows in alike]
    values = runs[0].values
    kind, _, size = name.partition("-")
    hyperparameters = dict(values.get(name, {}))
    if size:
        rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
        point = values[name] if kind == "hebb" else {}
        hyperparameters = {rate: values[f"mbpa-{size}"]["lr"], **point, "stored": int(size)}
    return _summary(
        runs,
        name,
        hyperparameters,
        [continual_scores(*both) for both in zip(accuracies, alike, strict=True)],
        [spread(points) for points in zip(*curves, strict=True)],
        [{"accuracy": rows} for rows in accuracies],
    )


def accuracies_of(predictions: Tensor, labels: Tensor) -> Accuracies:
    """Accuracies of predictions (T, T, n) uint8 for labels (n,) that all tasks share.

    [t, i] are those on task i after task t, ``MISSING`` where none was made.
    """
    answered = (predictions != MISSING).sum(2)  # (T, T)
    mixture_weights = (predictions == labels).sum(2).double() / answered
    return [mixture_weights[t, : t + 1].tolist() for t in range(len(mixture_weights))]


def continual_scores(accuracies: Accuracies, alike: Accuracies) -> dict[str, float | None]:
    """Scores after the last task; the latter two are None for a single one.

    ``average_accuracy`` is the mean over all tasks, on all samples that were tested, which after
    the last task are more than before; the others are on those alone that were tested after every
    task, ``alike``. ``forgetting`` is how far each task but the last fell from its best so far, on
    average (Chaudhry et al. 2018); ``backward_transfer`` how far each of them rose since it was
    learnt, on average (Lopez-Paz and Ranzato 2017).
    """
    *before, last = alike
    drops = [max(row[task] for row in before[task:]) - last[task] for task in range(len(before))]
    rises = [last[task] - row[task] for task, row in enumerate(before)]
    return {
        "average_accuracy": sum(accuracies[-1]) / len(last),
        "forgetting": sum(drops) / len(drops) if drops else None,
        "backward_transfer": sum(rises) / len(rises) if rises else None,
    }
