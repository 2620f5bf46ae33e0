"""Checkpoints: one folder with safetensors weights, a JSON configuration and the dictionary's hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors_torch

from awd_lstm.config import AWDLSTMConfig
from awd_lstm.document import CONFIG, CheckpointError, read_config
from awd_lstm.model import AWDLSTM

FORMAT = "awd-lstm/1"
WEIGHTS = "model.safetensors"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling that replaces ``path`` when the block succeeds and vanishes when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_file(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file.

    Raises:
        OSError: it cannot be written; safetensors has an exception of its own, which hides the cause in its text.
    """
    try:
        safetensors_torch.save_file(tensors, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def save_checkpoint(
    folder: Path,
    model: AWDLSTM,
    *,
    dictionary_sha256: str,
    training: dict[str, Any],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model to ``folder``.

    The weights file carries configuration and dictionary hash in its own header, so that weights and shape
    can never disagree; ``config.json`` repeats them for people, with ``training``: how the model came about.
    Both are written in full before either takes its place, so a save that fails leaves the older checkpoint
    as it was.

    Args:
        folder: created if missing; an older checkpoint there is replaced file by file.
        dictionary_sha256: hash of the dictionary whose ids the model reads.
        training: JSON object, e.g. command, seed, curve, versions.
        dtype: storage type of the weights, float16 halves the size.
    """
    tensors = {
        name: value.detach().cpu().to(dtype).contiguous() for name, value in model.state_dict().items()
    }
    header = {
        "format": FORMAT,
        "config": json.dumps(model.config.to_dict(), sort_keys=True),
        "dictionary_sha256": dictionary_sha256,
    }
    with replacing(folder / CONFIG) as config, replacing(folder / WEIGHTS) as weights:
        save_file(tensors, weights, metadata=header)
        document = {
            "format": FORMAT,
            "config": model.config.to_dict(),
            "dictionary_sha256": dictionary_sha256,
            "weights_sha256": file_sha256(weights),
            "dtype": str(dtype).removeprefix("torch."),
            "training": training,
        }
        config.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        # Weights without config.json load, weights beside another's do not: so a kill in between is harmless.
        (folder / CONFIG).unlink(missing_ok=True)


def load_checkpoint(folder: Path, *, dictionary_sha256: str | None = None) -> AWDLSTM:
    """Read a model in float32 and evaluation mode.

    Args:
        folder: as written by :func:`save_checkpoint`.
        dictionary_sha256: hash of the dictionary in use; ``None`` where the caller takes the checkpoint's.

    Raises:
        CheckpointError: missing, truncated or altered file, another format, or another dictionary.
    """
    header, tensors = _read(folder / WEIGHTS)
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder / WEIGHTS} has format {header.get('format')!r}, not {FORMAT!r}; retrain it"
        )
    stored = header["dictionary_sha256"]
    if dictionary_sha256 is not None and stored != dictionary_sha256:
        raise CheckpointError(
            f"checkpoint {folder} was trained with dictionary {stored[:12]}, not {dictionary_sha256[:12]}; "
            "use the corpus and normalisation it was trained on"
        )
    recorded = read_config(folder).get("weights_sha256")
    if recorded is not None and recorded != file_sha256(folder / WEIGHTS):
        raise CheckpointError(
            f"{folder / WEIGHTS} does not match the sha256 in {CONFIG}; restore or retrain it"
        )
    model = AWDLSTM(AWDLSTMConfig(**json.loads(header["config"])))
    model.load_state_dict({name: value.float() for name, value in tensors.items()})
    return model.eval()


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Return header and tensors of a safetensors file."""
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}; train one with hebblm-train or name another folder")
    try:
        with safe_open(path, framework="pt") as stream:
            return stream.metadata() or {}, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file; restore or retrain it"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
