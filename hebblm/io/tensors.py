"""Tensors by name in files that are whole or absent, with a record and a hash inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hebblm.errors import UserError
from hebblm.io.files import atomic_path, lack

HASH = "sha256"


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], kind: str, record: Mapping[str, Any] | None = None
) -> None:
    """Write a safetensors file, atomically; the same bytes for the same content.

    ``record`` is a JSON object. It goes into the header under the ``kind`` of file, so that it
    always belongs to the tensors.
    """
    plain = {name: _alone(tensor) for name, tensor in tensors.items()}
    fields = dict(record or {})
    # A single entry: the library writes several in an order that changes from run to run.
    header = {kind: json.dumps({**fields, HASH: _hash(plain, fields)}, sort_keys=True)}
    with atomic_path(path) as temporary:
        # As bytes: if the library itself writes the file, its error hides the cause.
        temporary.write_bytes(save(plain, header))


def read_tensors(path: Path, kind: str, remedy: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and record of a file, and check the record's hash, which every file written
    here has.

    The record of a file of another kind is empty. ``remedy`` ends the error about a file that
    cannot be used.
    """
    try:
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; {remedy}")
        with safe_open(path, framework="pt") as stream:
            record = json.loads((stream.metadata() or {}).get(kind, "{}"))
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is truncated or unreadable; {remedy}") from error
    recorded = record.pop(HASH, None)  # a file of an earlier version may have no hash
    if recorded is not None and recorded != _hash(tensors, record):
        raise UserError(f"{path} was changed since it was written; {remedy}")
    return tensors, record


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to memory that torch allocates.

    In a file a tensor begins at any address. On some processors the last bit of a product depends
    on the address of its factors, so results from a file would differ from results without one.
    """
    return tensor.to(device, copy=True)


def _alone(tensor: Tensor) -> Tensor:
    """Return a tensor as it is written: on the CPU, contiguous, and sharing memory with no
    other.
    """
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def _hash(tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> str:
    """Return the hash of tensors, their names, types and shapes, and their record."""
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # A copy: a tensor that shares its memory with NumPy cannot be resized any more.
        digest.update(
            tensor.clone(memory_format=torch.contiguous_format)
            .view(-1)
            .view(torch.uint8)
            .numpy()
            .data
        )
    return digest.hexdigest()
