"""Output of an image experiment: predictions by seed, in files next to the result, and numbers over
the seeds.
"""

from __future__ import annotations

import hashlib
import re
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
SCORES = ("accuracy", "old", "new", "harmonic_mean", "harmonic_mean_reached", "loss")
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
        which = (
            {"condition": self.condition, "seed": self.seed}
            if self.condition
            else {"seed": self.seed}
        )
        name = re.sub(r"[^0-9a-z]+", "-", f"{self.condition}-seed-{self.seed}").removeprefix("-")
        path = folder / f"{name}.safetensors"
        made = {f"predictions.{method}": classes for method, classes in self.predictions.items()}
        header = {"experiment": experiment, **{key: str(value) for key, value in which.items()}}
        write_tensors(path, {**self.drawn, "labels": self.labels, **made}, KIND, header)
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


def digest(tensor: Tensor) -> str:
    """The sha256 of a tensor of whole numbers, as little-endian int64."""
    return hashlib.sha256(tensor.to(torch.int64).numpy().astype("<i8").tobytes()).hexdigest()


def over_seeds(scores: Sequence[Mapping[str, float | None]]) -> dict[str, Spread | None]:
    """Mean and standard deviation of each score; None where a seed has none."""
    return {key: spread([score[key] for score in scores]) for key in scores[0]}


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and standard deviation over seeds; None where a seed has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    tensor = torch.tensor(known, dtype=torch.float64)
    return {"mean": float(tensor.mean()), "std": float(tensor.std()) if len(known) > 1 else None}


def at_end(tuning: Mapping[str, Tried | None]) -> list[str]:
    """The best values that are the least or the largest tried, as ``hebb.eta (50)``: better may lie
    beyond.

    A value between them that does as well says that there is none. ``tuning`` is by condition, None
    where nothing was left to choose.
    """
    found = []
    for condition, tried in tuning.items():
        for method, points in (tried or {}).items():
            score = next(
                name
                for name in ("harmonic_mean_reached", "harmonic_mean", "accuracy")
                if name in points[0]
            )
            winner = max(map(partial(_rank, score), points))
            tied = [point for point in points if _rank(score, point) == winner]
            for name, value in best(points, score).items():
                values = {point[name] for point in points}
                at_ends = {point[name] for point in tied} <= {min(values), max(values)}
                if len(values) > 1 and at_ends and (name, value) not in LIMITS:
                    found.append(
                        f"{method}.{name} ({condition})" if condition else f"{method}.{name}"
                    )
    return found


def best(tried: list[Point], score: str = "accuracy") -> Point:
    """The point with the best score, of several the one with the smallest ``loss``, without its
    scores.
    """
    winner = max(tried, key=partial(_rank, score))
    return {name: value for name, value in winner.items() if name not in SCORES}


def _rank(score: str, point: Point) -> tuple[float, float]:
    return point[score], -point["loss"]
