"""The result of permuted MNIST as JSON, with every seed's tasks and predictions in files beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hebblm.vision.permuted_mnist.chain import MISSING
from hebblm.vision.permuted_mnist.experiment import PermutedOutcome, SeedOutcome
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
    seed, drawn = outcome.stream.seed, vars(outcome.stream.drawn)
    path, header = folder / f"seed-{seed}.safetensors", {"experiment": EXPERIMENT, "seed": str(seed)}
    labels = outcome.stream.test_labels
    return {
        "seed": seed,
        **write_predictions(path, header, drawn=drawn, labels=labels, predictions=outcome.predictions),
        "training_seconds": dict(outcome.training),
    }


def _tuning(outcome: PermutedOutcome, settings: PermutedSettings) -> dict[str, Any]:
    """Return how the hyper-parameters were chosen."""
    return {
        "seed": outcome.seeds[0].stream.seed,
        "tasks": settings.tune_tasks,
        "held_out_samples_a_task": {"ewc": settings.held_out, "adaptation": settings.tune_samples},
        "tried": outcome.tried,
    }


def _method(outcome: PermutedOutcome, name: str, settings: PermutedSettings) -> dict[str, Any]:
    """Return what the result says of a method: seed by seed, and over the seeds."""
    results = [continual_result(seed.predictions[name], seed.stream.test_labels) for seed in outcome.seeds]
    curves = zip(*(result.curve for result in results), strict=True)
    return {
        "hyperparameters": _hyperparameters(outcome, name, settings),
        **{key: spread([getattr(result, key) for result in results]) for key in SUMMARIES},
        "curve": [spread(values) for values in curves],
        "seeds": [
            {
                "seed": seed.stream.seed,
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


@dataclass(frozen=True, slots=True)
class ContinualResult:
    """Accuracies of one method with one seed, as shares within [0, 1].

    Args:
        accuracy: (T, T) rows; ``accuracy[t][i]`` is that on task i <= t after task t was learnt.
    """

    accuracy: tuple[tuple[float, ...], ...]

    @property
    def curve(self) -> tuple[float, ...]:
        """Return the mean over the tasks learnt so far, after each task (the paper's Fig. mnist)."""
        return tuple(sum(row) / len(row) for row in self.accuracy)

    @property
    def average_accuracy(self) -> float:
        """Return the mean over all tasks after the last one."""
        return self.curve[-1]

    @property
    def forgetting(self) -> float | None:
        """Return how far each task but the last fell from its best so far, on average (Chaudhry et al. 2018)."""
        last = len(self.accuracy) - 1
        drops = [max(self.accuracy[t][i] for t in range(i, last)) - self.accuracy[last][i] for i in range(last)]
        return sum(drops) / len(drops) if drops else None

    @property
    def backward_transfer(self) -> float | None:
        """Return how far each task but the last rose since it was learnt, on average (Lopez-Paz and Ranzato 2017)."""
        last = len(self.accuracy) - 1
        rises = [self.accuracy[last][i] - self.accuracy[i][i] for i in range(last)]
        return sum(rises) / len(rises) if rises else None


def continual_result(predictions: Tensor, labels: Tensor) -> ContinualResult:
    """Return the accuracies of predictions.

    Args:
        predictions: (T, T, n) uint8; [t, i] are those on task i after task t, ``MISSING`` where none was made.
        labels: (n,) int64, the same for all tasks.
    """
    made = (predictions != MISSING).sum(2)  # (T, T)
    shares = (predictions == labels).sum(2).double() / made
    return ContinualResult(tuple(tuple(shares[t, : t + 1].tolist()) for t in range(len(shares))))
