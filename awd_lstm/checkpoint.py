"""Checkpoints: one folder with safetensors weights, a JSON configuration and the dictionary's hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from awd_lstm.config import AWDLSTMConfig
from awd_lstm.document import CONFIG, CheckpointError, read_config, sealed
from awd_lstm.files import HASH, file_sha256, read_file, replacing, save_file
from awd_lstm.model import AWDLSTM

FORMAT = "awd-lstm/1"
WEIGHTS = "model.safetensors"
REMEDY = "restore or retrain it"


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
    tensors = {name: value.detach().cpu().to(dtype).contiguous() for name, value in model.state_dict().items()}
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
        config.write_text(json.dumps(sealed(document), indent=2) + "\n", encoding="utf-8")
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
    path = folder / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"no checkpoint at {path}; train one with hebblm-train or name another folder")
    header, tensors = read_file(path, REMEDY)
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {header.get('format')!r}, not {FORMAT!r}; retrain it")
    stored = header.get("dictionary_sha256", "")
    if dictionary_sha256 is not None and stored != dictionary_sha256:
        raise CheckpointError(
            f"checkpoint {folder} was trained with dictionary {stored[:12]}, not {dictionary_sha256[:12]}; "
            "use the corpus and normalisation it was trained on"
        )
    recorded = read_config(folder).get("weights_sha256")
    if recorded is None and HASH not in header:
        raise CheckpointError(f"{folder / CONFIG} is missing or has no hash of {path}; {REMEDY}")
    if recorded is not None and recorded != file_sha256(path):
        raise CheckpointError(f"{path} does not match the sha256 in {CONFIG}; {REMEDY}")
    model = AWDLSTM(_fitting(header.get("config", ""), tensors, path))
    model.load_state_dict({name: value.float() for name, value in tensors.items()})
    return model.eval()


def _fitting(text: str, tensors: dict[str, Tensor], path: Path) -> AWDLSTMConfig:
    """Shape of a model, whose tensors are exactly those at hand; nothing is allocated to find out."""
    try:
        config = msgspec.json.decode(text, type=AWDLSTMConfig)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CheckpointError(f"the header of {path} says no shape of a model ({error}); {REMEDY}") from error
    longest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    wanted: dict[str, tuple[int, ...]] = {}
    # No weight of a model is shorter than its sizes, nor are there fewer of them than layers.
    if config.layers <= len(tensors) and longest >= max(
        config.vocabulary_size, *(width for widths in config.layer_sizes() for width in widths)
    ):
        with torch.device("meta"):
            wanted = {name: tuple(tensor.shape) for name, tensor in AWDLSTM(config).state_dict().items()}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != wanted:
        raise CheckpointError(f"{path} has other tensors than its header says; {REMEDY}")
    return config
