"""State with which a killed training run goes on exactly where it was, in one atomically written file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.optim import Optimizer

from awd_lstm.document import CheckpointError
from awd_lstm.files import read_file, replacing, save_file

STATE = "training.safetensors"
STATE_FORMAT = "awd-lstm-training/1"


def save_state(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one file, so that they cannot be of different moments."""
    header = {"format": STATE_FORMAT, "record": json.dumps(record, allow_nan=False)}
    with replacing(path) as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary, header)


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_state` wrote, the tensors where torch puts its own.

    In a file they begin anywhere, and on some processors the last bit of a product depends on that.
    """
    remedy = "delete it to start anew"
    header, tensors = read_file(path, remedy)
    if header.get("format") != STATE_FORMAT:
        raise CheckpointError(f"{path} is not the state of a training run; {remedy}")
    try:
        record = msgspec.json.decode(header["record"], type=dict[str, Any])
    except (KeyError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{path} has no record of its run; {remedy}") from error
    return {name: value.clone() for name, value in tensors.items()}, record


def pack_optimizer(optimizer: Optimizer) -> dict[str, Tensor]:
    """Flatten an optimiser's state to named tensors; numbers become float64 scalars."""
    packed: dict[str, Tensor] = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if value is not None:
                packed[f"optimizer.{index}.{name}"] = (
                    value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
                )
    return packed


def unpack_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what :func:`pack_optimizer` took; the parameter groups keep their present settings."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
