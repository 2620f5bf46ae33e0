"""The result of permuted MNIST as JSON, with every seed's tasks and predictions in files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hebblm.files import sha256, write_json
from hebblm.vision.data.images import ImageDataset
from hebblm.vision.permuted_mnist.experiment import Outcome, SeedOutcome
from hebblm.vision.permuted_mnist.metrics import ContinualResult, continual_result, spread
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.result import RESULT_FILE, head
from hebblm.vision.state import write_tensors

EXPERIMENT = "permuted-mnist"
SUMMARIES = ("average_accuracy", "forgetting", "backward_transfer")


def write_result(
    outcome: Outcome,
    folder: Path,
    *,
    scale: str,
    settings: PermutedSettings,
    dataset: ImageDataset,
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """Write ``result.json`` and ``seed-S.safetensors``, and return the former.

    Args:
        outcome: of the run.
        folder: where to.
        scale: smoke, small or paper.
        settings: of the run.
        dataset: the pictures.
        provenance: command, commit, versions, device.
    """
    seeds = [_write_seed(seed, folder) for seed in outcome.seeds]
    document = {
        **head(
            EXPERIMENT,
            scale=scale,
            settings=asdict(settings),
            dataset=dataset,
            provenance=provenance,
            seeds=[seed.seed for seed in outcome.seeds],
        ),
        "tuning": None if outcome.values.record is None else _tuning(outcome, settings),
        "seeds": seeds,
        "methods": {name: _method(outcome, name, settings) for name in outcome.seeds[0].predictions},
    }
    write_json(folder / RESULT_FILE, document)
    return document


def _write_seed(outcome: SeedOutcome, folder: Path) -> dict[str, Any]:
    """Write a seed's permutations, samples, labels and predictions; return what the result says of them."""
    path = folder / f"seed-{outcome.seed}.safetensors"
    tensors = {**outcome.drawn.tensors(), "labels": outcome.labels}
    tensors |= {f"predictions.{name}": made for name, made in outcome.predictions.items()}
    write_tensors(path, tensors, {"experiment": EXPERIMENT, "seed": str(outcome.seed)})
    return {
        "seed": outcome.seed,
        "file": path.name,
        "file_sha256": sha256(path),
        "sha256": outcome.drawn.sha256(),
        "training_seconds": {kind: outcome.totals[f"training-{kind}"]["seconds"] for kind in ("mlp", "ewc")},
    }


def _tuning(outcome: Outcome, settings: PermutedSettings) -> dict[str, Any]:
    """Return how the hyper-parameters were chosen."""
    return {
        "seed": outcome.seeds[0].seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": outcome.values.record,
    }


def _method(outcome: Outcome, name: str, settings: PermutedSettings) -> dict[str, Any]:
    """Return what the result says of a method: seed by seed, and over the seeds."""
    results = [continual_result(seed.predictions[name], seed.labels) for seed in outcome.seeds]
    curves = zip(*(result.curve for result in results), strict=True)
    return {
        "hyperparameters": _hyperparameters(outcome, name, settings),
        **{key: _over_seeds(results, key) for key in SUMMARIES},
        "curve": [spread(list(values)) for values in curves],
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


def _over_seeds(results: list[ContinualResult], key: str) -> dict[str, float | None] | None:
    """Return mean and spread of a summary; None where a single task leaves it undefined."""
    values = [getattr(result, key) for result in results]
    return None if None in values else spread(values)


def _hyperparameters(outcome: Outcome, name: str, settings: PermutedSettings) -> dict[str, float]:
    """Return the values that a method ran with."""
    if name == "ewc":
        return {"lambda": outcome.values.ewc}
    if name == "mlp":
        return {}
    kind, _, size = name.partition("-")
    values = outcome.values.adaptation[int(size)]
    hebb = {"beta": values.beta, "eta": values.eta} if kind == "hebb" else {}
    rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
    return {rate: values.lr, **hebb, "stored": int(size)}
