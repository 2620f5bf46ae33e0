"""Files of tensors: whole or absent, the same bytes for the same content, with a hash of all of it inside."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors_torch
from torch import Tensor

from awd_lstm.document import CheckpointError

HASH = "sha256"
_METADATA = "__metadata__"
_LONGEST = 1 << 26  # bytes of a header; those of real models have some thousands
_CHUNK = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Temporary sibling that replaces ``path`` when the block succeeds and vanishes when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    for left in path.parent.glob(f".{path.name}.*"):  # of a process that was killed
        number = left.suffix[1:]
        if number.isdecimal() and Path("/proc/self").exists() and not Path("/proc", number).exists():
            left.unlink(missing_ok=True)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Hash of a file as hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_file(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file; its header is in order and holds, as ``sha256``, the hash of all the rest."""
    # As bytes: the library writes metadata in an order that changes from run to run, gives its files a mode of its own
    # and hides the cause of a failure in its text.
    content = memoryview(safetensors_torch.save(tensors))
    begin = 8 + int.from_bytes(content[:8], "little")
    header = {**json.loads(bytes(content[8:begin])), _METADATA: metadata}
    digest = _digest(header)
    digest.update(content[begin:])
    header[_METADATA] = {**metadata, HASH: digest.hexdigest()}
    text = _canonical(header)
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.write(content[begin:])


def read_file(path: Path, remedy: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file; where the metadata has a ``sha256``, it was found right."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} is no file; {remedy}")
        with path.open("rb") as stream:
            metadata = _verified(stream, path, remedy)
        with safe_open(path, framework="pt") as opened:
            return metadata, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}; {remedy}") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is truncated or not a safetensors file; {remedy}") from error


def _verified(stream: IO[bytes], path: Path, remedy: str) -> dict[str, str]:
    """Metadata of an open file, whose hash is compared if it has one."""
    length = int.from_bytes(stream.read(8), "little")
    header = json.loads(stream.read(min(length, _LONGEST)))
    metadata = header.get(_METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(header)
    if HASH in metadata:
        digest = _digest({**header, _METADATA: {k: v for k, v in metadata.items() if k != HASH}})
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
        if digest.hexdigest() != metadata[HASH]:
            raise CheckpointError(f"{path} is truncated or was changed since it was written; {remedy}")
    return metadata


def _digest(header: dict[str, Any]) -> hashlib._Hash:
    return hashlib.sha256(_canonical(header))


def _canonical(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
