"""Setup of every image experiment: data, settings, where to compute, where to keep."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch

from hebblm.vision.data.images import ImageDataset

S = TypeVar("S")
STATE = "state"


@dataclass(frozen=True, slots=True)
class Setup(Generic[S]):
    """An experiment before it is run.

    Args:
        dataset: the pictures.
        settings: sizes and grids.
        seeds: at least one, each once; hyper-parameters are tuned with the first.
        device: where to compute.
        cache: folder of pre-trained networks and of what was tuned.
        folder: receives the result, and ``state/`` while a run lasts.
    """

    dataset: ImageDataset
    settings: S
    seeds: tuple[int, ...]
    device: torch.device
    cache: Path
    folder: Path

    @property
    def state(self) -> Path:
        """Where an interrupted run keeps what it has."""
        return self.folder / STATE

    def clear(self) -> None:
        """Remove the state of a run whose result is written."""
        shutil.rmtree(self.state, ignore_errors=True)
