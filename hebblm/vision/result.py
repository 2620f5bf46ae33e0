"""Parts that the results of all image experiments share: names, files beside them, numbers over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.files import sha256
from hebblm.vision.state import digest, write_tensors

SCHEMA = "hebblm-vision/1"
RESULT_FILE = "result.json"
SCORES = ("accuracy", "old", "new", "harmonic_mean", "loss")


def write_predictions(
    path: Path,
    header: Mapping[str, str],
    *,
    drawn: Mapping[str, Tensor],
    labels: Tensor,
    predictions: Mapping[str, Tensor],
) -> dict[str, Any]:
    """Write what a seed drew and predicted, and return what the result says of the file.

    Args:
        path: the file.
        header: experiment and seed.
        drawn: by name, whatever the seed decided about the pictures.
        labels: (n,) int64 of the test pictures.
        predictions: by method, (..., n) uint8.
    """
    tensors = {**drawn, "labels": labels}
    tensors |= {f"predictions.{method}": made for method, made in predictions.items()}
    write_tensors(path, tensors, dict(header))
    return {
        "file": path.name,
        "file_sha256": sha256(path),
        "sha256": {name: digest(tensor) for name, tensor in drawn.items()},
    }


def spread(values: Sequence[float | None]) -> dict[str, float | None] | None:
    """Return mean and standard deviation over seeds.

    The latter is None for a single seed, and both are undefined, None, where a seed has no value.
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    tensor = torch.tensor(known, dtype=torch.float64)
    return {"mean": float(tensor.mean()), "std": float(tensor.std()) if len(known) > 1 else None}


def best(tried: list[dict[str, float]], score: str = "accuracy") -> dict[str, float]:
    """Return the point with the best score, of several the one with the smallest ``loss``, without its scores."""
    winner = max(tried, key=lambda point: (point[score], -point["loss"]))
    return {name: value for name, value in winner.items() if name not in SCORES}
