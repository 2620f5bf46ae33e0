"""Setup of every image experiment: data, settings, where to compute, where to keep, and the bars of its stages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import torch

from hebblm.files import hash_of_code
from hebblm.progress import bar
from hebblm.vision.data.images import ImageDataset

S = TypeVar("S")
STATE = "state"
PACKAGE = Path(__file__).parents[1]
NUMBERS = ("adapt", "memory", "types.py", "vision/data", "vision/result.py", "vision/seeds.py")
"""Parts of the program that the numbers of every image experiment depend on."""


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


@cache
def program(*parts: str) -> str:
    """Return torch's version and a hash of parts of this package, by their paths: what they gave may be kept."""
    return f"{torch.__version__} {hash_of_code(*(PACKAGE / part for part in parts))}"


@contextmanager
def stage(description: str, total: int, unit: str = "pictures") -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and yield what advances it.

    Args:
        description: what is being done.
        total: how many things are left to do; what an interrupted run had finished says nothing about the speed.
        unit: what they are.
    """
    with bar() as progress:
        task = progress.add_task(description, total=total, unit=unit)
        yield lambda count: progress.advance(task, count)
