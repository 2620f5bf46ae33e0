"""Output of an image experiment: predictions by seed, in files next to the result, and numbers over
the seeds.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hebblm.io.files import sha256
from hebblm.io.tensors import write_tensors
from hebblm.vision.state import KIND

SCHEMA = "hebblm-vision/1"
RESULT_FILE = "result.json"
KEYS = ("new", "old", "overall")
MISSING = 255
"""Stands for no prediction: the task had not been learnt yet, or the sample was not tested."""
LEVEL = 0.95
END = "overall_at_end"  # accuracy over all classes in the end, by which a network's point is chosen
OVERALL = "overall"  # accuracy over all classes, by which a method's point is chosen
GATE = "gate "  # before the name of a weight that the gate has learned, and nobody tried
# What a point was chosen by, the first that it has; the last ones are of results before these.
CHOSEN_BY = ("harmonic_mean_reached", END, OVERALL, "harmonic_mean", "accuracy")
SCORES = (*CHOSEN_BY, "old", "new", "loss")
LIMITS = {("gamma", 1.0)}
"""Values of hyper-parameters beyond which there is none: a share is 1 at most."""

Values = Mapping[str, Mapping[str, float]]
"""Hyper-parameters by method."""
Point = dict[str, float]
"""Hyper-parameters of one method, and where it was tried, its scores."""
Tried = dict[str, list[Point]]
"""By method, every point with its scores on held-out pictures."""
Spread = dict[str, float | None]
"""``mean`` and ``std`` over seeds; the latter is None for a single one."""


@dataclass(frozen=True, slots=True)
class SeedRun:
    """Predictions of one seed under one condition."""

    seed: int
    values: Values
    labels: Tensor  # (n,) int64 of the test pictures, in the order in which they were predicted
    # By method, uint8: (E, n) after each epoch, or once (E = 1) on the way through a stream; (T, T,
    # n) after each task of each task.
    predictions: Mapping[str, Tensor]
    counted: Mapping[str, Mapping[str, float]]  # by method, what was counted or timed on the way
    drawn: Mapping[str, Tensor]  # by name, whatever else the seed decided about the pictures
    condition: str = ""  # such as 50 old classes, or 2:1; nothing where there is but one
    about: Mapping[str, Any] = field(default_factory=dict)  # what else the result says of the seed

    def write(self, experiment: str, folder: Path) -> dict[str, Any]:
        """Write what the seed drew and predicted, and return what the result says of it."""
        which: dict[str, Any] = {}
        if self.condition:
            which["condition"] = self.condition
        which["seed"] = self.seed
        name = re.sub(r"[^0-9a-z]+", "-", f"{self.condition}-seed-{self.seed}").removeprefix("-")
        path = folder / f"{name}.safetensors"
        predictions = {}
        for method, classes in self.predictions.items():
            predictions[f"predictions.{method}"] = classes
        header = {"experiment": experiment}
        for key, value in which.items():
            header[key] = str(value)
        write_tensors(path, {**self.drawn, "labels": self.labels, **predictions}, KIND, header)
        return {
            **which,
            "file": path.name,
            "file_sha256": sha256(path),
            "sha256": {name: digest(tensor) for name, tensor in self.drawn.items()},
            **self.about,
        }


class Outcome(NamedTuple):
    """Predictions by condition and seed, and by condition what was tried for the
    hyper-parameters.
    """

    runs: tuple[SeedRun, ...]
    tuning: Mapping[str, Tried | None]


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The mean difference of two methods over the same seeds, and both ends of its 95 % interval by
    Student's t.

    The ends are infinite for a single seed.
    """
    from scipy.stats import t

    gaps = [one - other for one, other in zip(first, second, strict=True)]
    mean = statistics.fmean(gaps)
    if len(gaps) == 1:
        return mean, -math.inf, math.inf
    deviations = float(t.ppf((1 + LEVEL) / 2, len(gaps) - 1))
    half = deviations * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return mean, mean - half, mean + half


def paired_pictures(first: Tensor, second: Tensor) -> tuple[float, float, float]:
    """The mean difference of two methods over the same pictures, and both ends of its 95 % interval
    by the normal distribution.

    Args:
        first: (n,) bool, whether the first method was right.
        second: (n,) bool, whether the second was.
    """
    gaps = first.double() - second.double()
    mean = float(gaps.mean())
    if len(gaps) == 1:
        return mean, -math.inf, math.inf
    half = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2) * float(gaps.std()) / len(gaps) ** 0.5
    return mean, mean - half, mean + half


def digest(tensor: Tensor) -> str:
    """The sha256 of a tensor of whole numbers, as little-endian int64."""
    return hashlib.sha256(tensor.to(torch.int64).numpy().astype("<i8").tobytes()).hexdigest()


def harmonic_mean(old: float, new: float) -> float:
    """The harmonic mean of two shares; 0 where both are."""
    if old + new == 0:
        return 0.0
    return 2 * old * new / (old + new)


def over_seeds(scores: Sequence[Mapping[str, float | None]]) -> dict[str, Spread | None]:
    """Mean and standard deviation of each score; None where a seed has none."""
    return {key: spread([score[key] for score in scores]) for key in scores[0]}


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and standard deviation over seeds; None where a seed has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    tensor = torch.tensor(known, dtype=torch.float64)
    deviation = float(tensor.std()) if len(known) > 1 else None
    return {"mean": float(tensor.mean()), "std": deviation}


def at_end(tuning: Mapping[str, Tried | None]) -> list[str]:
    """The best values that are the least or the largest tried, as ``hebb.eta (50)``: better may lie
    beyond.

    A value between them that does as well says that there is none. ``tuning`` is by condition, None
    where nothing was left to choose.
    """
    names = []
    for condition, tried in tuning.items():
        for method, points in (tried or {}).items():
            score = next(name for name in CHOSEN_BY if name in points[0])
            winner = max(map(partial(_rank, score), points))
            tied = [point for point in points if _rank(score, point) == winner]
            for name, value in best(points, score).items():
                if name.startswith(GATE):
                    continue
                values = {point[name] for point in points}
                at_ends = {point[name] for point in tied} <= {min(values), max(values)}
                if len(values) > 1 and at_ends and (name, value) not in LIMITS:
                    names.append(
                        f"{method}.{name} ({condition})" if condition else f"{method}.{name}"
                    )
    return names


def best(tried: list[Point], score: str = "accuracy") -> Point:
    """The point with the best score, of several the one with the smallest ``loss``, without its
    scores.
    """
    winner = max(tried, key=partial(_rank, score))
    return {name: value for name, value in winner.items() if name not in SCORES}


def _rank(score: str, point: Point) -> tuple[float, float]:
    return point[score], -point["loss"]
