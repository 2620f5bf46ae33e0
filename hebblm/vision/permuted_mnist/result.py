"""The result of permuted MNIST as JSON, with every seed's tasks and predictions in files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hebblm.vision.permuted_mnist.experiment import PermutedOutcome, SeedOutcome
from hebblm.vision.permuted_mnist.metrics import continual_result
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.result import spread, write_predictions
from hebblm.vision.setup import Setup

EXPERIMENT = "permuted-mnist"
SUMMARIES = ("average_accuracy", "forgetting", "backward_transfer")


def outcome_of(outcome: PermutedOutcome, setup: Setup[PermutedSettings]) -> dict[str, Any]:
    """Write ``seed-S.safetensors`` of each seed, and return what the result says."""
    settings = setup.settings
    return {
        "tuning": None if outcome.tried is None else _tuning(outcome, settings),
        "seeds": [_write_seed(seed, setup.folder) for seed in outcome.seeds],
        "methods": {name: _method(outcome, name, settings) for name in outcome.seeds[0].predictions},
    }


def _write_seed(outcome: SeedOutcome, folder: Path) -> dict[str, Any]:
    """Write a seed's permutations, samples, labels and predictions; return what the result says of them."""
    path = folder / f"seed-{outcome.seed}.safetensors"
    header = {"experiment": EXPERIMENT, "seed": str(outcome.seed)}
    drawn = vars(outcome.drawn)
    return {
        "seed": outcome.seed,
        **write_predictions(
            path, header, drawn=drawn, labels=outcome.labels, predictions=outcome.predictions
        ),
        "training_seconds": dict(outcome.training),
    }


def _tuning(outcome: PermutedOutcome, settings: PermutedSettings) -> dict[str, Any]:
    """Return how the hyper-parameters were chosen."""
    return {
        "seed": outcome.seeds[0].seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": outcome.tried,
    }


def _method(outcome: PermutedOutcome, name: str, settings: PermutedSettings) -> dict[str, Any]:
    """Return what the result says of a method: seed by seed, and over the seeds."""
    results = [continual_result(seed.predictions[name], seed.labels) for seed in outcome.seeds]
    curves = zip(*(result.curve for result in results), strict=True)
    return {
        "hyperparameters": _hyperparameters(outcome, name, settings),
        **{key: spread([getattr(result, key) for result in results]) for key in SUMMARIES},
        "curve": [spread(values) for values in curves],
        "seeds": [
            {
                "seed": seed.seed,
                **{key: getattr(result, key) for key in SUMMARIES},
                "accuracy": [list(row) for row in result.accuracy],
                "seconds": seed.totals[name]["seconds"],
                "rose": int(seed.totals[name]["rose"]),
            }
            for seed, result in zip(outcome.seeds, results, strict=True)
        ],
    }


def _hyperparameters(outcome: PermutedOutcome, name: str, settings: PermutedSettings) -> dict[str, float]:
    """Return the values that a method ran with."""
    if name == "mlp":
        return {}
    kind, _, size = name.partition("-")
    if not size:
        return dict(outcome.values[name])
    rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
    own = outcome.values[name] if kind == "hebb" else {}
    return {rate: outcome.values[f"mbpa-{size}"]["lr"], **own, "stored": int(size)}
