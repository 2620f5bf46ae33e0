"""A long computation kept on disk in parts, whole or absent each: an interrupted one goes on behind its last."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import atomic_path, lack, read_json, sha256, write_json
from hebblm.locks import held
from hebblm.models.base import State

STATE = "state "
"""Prefix of the names of a base's state in a part."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts in a folder, numbered from 0: tensors by name, and beside them the hash that says that they are whole.

    Args:
        folder: made when the first part is saved.
    """

    folder: Path

    def finished(self) -> int:
        """Return how many parts, from the first on, are there."""
        index = 0
        while self._path(index).with_suffix(".json").is_file():
            index += 1
        return index

    def save(self, index: int, tensors: dict[str, Tensor]) -> None:
        """Write a part, then its hash."""
        path = self._path(index)
        with atomic_path(path) as temporary:
            # As bytes: the library hides a full disk in an error of its own.
            temporary.write_bytes(save({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}))
        write_json(path.with_suffix(".json"), {"sha256": sha256(path)})

    def load(self, index: int) -> dict[str, Tensor]:
        """Return the tensors of a part as they lie in its file; see :func:`placed`."""
        return load_file(self._path(index))

    def check(self, count: int) -> None:
        """Refuse parts that are missing or were changed among the first ``count``.

        Raises:
            UserError: naming the part.
        """
        for path in map(self._path, range(count)):
            if not path.is_file():
                raise UserError(f"{path} {lack(path)}; delete {self.folder}, it is computed anew")
            if read_json(path.with_suffix(".json")).get("sha256") != sha256(path):
                raise UserError(
                    f"{path} was changed (its sha256 is not the recorded one); "
                    f"delete {self.folder}, it is computed anew"
                )

    def held(self, what: str) -> AbstractContextManager[bool]:
        """Keep the parts of ``what`` to this process, see :func:`hebblm.locks.held`."""
        return held(self.folder, what)

    def _path(self, index: int) -> Path:
        return self.folder / f"part-{index:05d}.safetensors"


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy where torch puts its own tensors.

    In a file a tensor begins anywhere. On some processors the last bit of a product depends on where its factors
    begin, and what is computed from a part would differ from what is computed without.
    """
    return tensor.to(device, copy=True)


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names that begin with those of their group."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a group under their own names; the inverse of :func:`prefixed`."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


def unpacked_state(tensors: Mapping[str, Tensor], device: torch.device) -> State:
    """Return the state that a part was saved with under :data:`STATE`."""
    return {name: placed(tensor, device) for name, tensor in under(STATE, tensors).items()}
