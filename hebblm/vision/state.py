"""What a run needs to go on where it was interrupted: tensors and a record, one atomically written file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import atomic_path

FORMAT = "hebblm-vision-state/1"


def save_state(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one file, so that they cannot be of different moments."""
    write_tensors(path, tensors, {"format": FORMAT, "record": json.dumps(record)})


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write a safetensors file, atomically."""
    with atomic_path(path) as temporary:
        # As bytes: the library's own writing to a file hides the cause of a failure in its text.
        temporary.write_bytes(
            save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, header)
        )


def load_state(path: Path, run: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read what :func:`save_state` wrote, or return None where there is no such file.

    Args:
        path: the file.
        run: what the record has to say under ``run``: a hash of everything that decides about the numbers.

    Raises:
        UserError: truncated, another format, or the state of another run.
    """
    if not path.exists():
        return None
    remedy = f"delete {path.parent} to start anew, or choose another --output-path"
    try:
        with safe_open(path, framework="pt") as stream:
            header = stream.metadata() or {}
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is truncated or unreadable; {remedy}") from error
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not the state of an image experiment; {remedy}")
    record = json.loads(header["record"])
    if record.get("run") != run:
        raise UserError(f"{path} belongs to a run with other settings, data or seeds; {remedy}")
    return tensors, record
