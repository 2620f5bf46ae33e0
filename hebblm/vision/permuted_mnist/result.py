"""The result of permuted MNIST as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hebblm.vision.permuted_mnist.chain import MISSING
from hebblm.vision.permuted_mnist.settings import EXPERIMENT, PermutedSettings
from hebblm.vision.result import Outcome, SeedRun, Values, spread, summary

SUMMARIES = ("average_accuracy", "forgetting", "backward_transfer")


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
        "seeds": [run.write(EXPERIMENT, folder) for run in runs],
        "methods": {name: _method(runs, name, settings) for name in runs[0].predictions},
    }


def _method(runs: Sequence[SeedRun], name: str, settings: PermutedSettings) -> dict[str, Any]:
    """Return what the result says of a method."""
    results = [continual_result(run.predictions[name], run.labels) for run in runs]
    return summary(
        runs,
        name,
        _hyperparameters(runs[0].values, name, settings),
        [{key: getattr(result, key) for key in SUMMARIES} for result in results],
        [spread(values) for values in zip(*(result.curve for result in results), strict=True)],
        [{"accuracy": [list(row) for row in result.accuracy]} for result in results],
    )


def _hyperparameters(values: Values, name: str, settings: PermutedSettings) -> dict[str, float]:
    """Return the values that a method ran with."""
    kind, _, size = name.partition("-")
    if not size:
        return dict(values.get(name, {}))
    rate = "rho" if settings.mbpa_rate == "relative" else "lambda"
    own = values[name] if kind == "hebb" else {}
    return {rate: values[f"mbpa-{size}"]["lr"], **own, "stored": int(size)}


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
