"""A long computation kept on disk in parts, whole or absent each: an interrupted one goes on behind its last."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hebblm.locks import held
from hebblm.models.base import State
from hebblm.tensors import placed, read_tensors, under, write_tensors

KIND = "hebblm-part"
STATE = "state "
"""Prefix of the names of a base's state in a part."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts in a folder, numbered from 0: tensors by name.

    Args:
        folder: made when the first part is saved.
    """

    folder: Path

    def finished(self) -> int:
        """Return how many parts, from the first on, are there."""
        index = 0
        while self._path(index).is_file():
            index += 1
        return index

    def save(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """Write a part."""
        write_tensors(self._path(index), tensors, KIND)

    def load(self, index: int) -> dict[str, Tensor]:
        """Return the tensors of a part as they lie in its file; see :func:`hebblm.tensors.placed`.

        Raises:
            UserError: it is missing or was changed.
        """
        return read_tensors(self._path(index), KIND, f"delete {self.folder}, it is computed anew")[0]

    def held(self, what: str) -> AbstractContextManager[bool]:
        """Keep the parts of ``what`` to this process, see :func:`hebblm.locks.held`."""
        return held(self.folder, what)

    def _path(self, index: int) -> Path:
        return self.folder / f"part-{index:05d}.safetensors"


def unpacked_state(tensors: Mapping[str, Tensor], device: torch.device) -> State:
    """Return the state that a part was saved with under :data:`STATE`."""
    return {name: placed(tensor, device) for name, tensor in under(STATE, tensors).items()}
