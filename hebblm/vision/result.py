"""What every result of an image experiment begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hebblm.vision.data.images import ImageDataset

SCHEMA = "hebblm-vision/1"
RESULT_FILE = "result.json"


def head(
    experiment: str,
    *,
    scale: str,
    settings: Mapping[str, Any],
    dataset: ImageDataset,
    provenance: Mapping[str, Any],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """Return schema, experiment, scale, settings, data and provenance as JSON.

    Args:
        experiment: its name on the command line.
        scale: smoke, small or paper.
        settings: of the run.
        dataset: the pictures.
        provenance: command, commit, versions, device.
        seeds: all of them.
    """
    return {
        "schema": SCHEMA,
        "experiment": experiment,
        "scale": scale,
        "settings": dict(settings),
        "data": {"name": dataset.name, "sha256": dict(dataset.sha256)},
        "provenance": {**provenance, "seeds": list(seeds)},
    }
