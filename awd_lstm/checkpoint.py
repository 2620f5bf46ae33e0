"""Checkpoints, and the state with which a killed run goes on: whole or absent, with a hash
inside.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors_torch
from torch import Tensor
from torch.optim import Optimizer

from awd_lstm.config import AWDLSTMConfig
from awd_lstm.document import CONFIG, CheckpointError, read_config, sealed
from awd_lstm.model import AWDLSTM

FORMAT, STATE_FORMAT = "awd-lstm/1", "awd-lstm-training/1"
WEIGHTS, STATE = "model.safetensors", "training.safetensors"
REMEDY = "restore or retrain it"
HASH = "sha256"
_METADATA = "__metadata__"
_LONGEST = 1 << 26  # bytes of a header; those of real models have some thousands
_CHUNK = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Temporary sibling that replaces ``path`` when the block succeeds and vanishes when it
    fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    for left in path.parent.glob(f".{path.name}.*"):  # of a process that was killed
        number = left.suffix[1:]
        if (
            number.isdecimal()
            and Path("/proc/self").exists()
            and not Path("/proc", number).exists()
        ):
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
    """Write a safetensors file; its header is in order and holds, as ``sha256``, the hash of all
    the rest.
    """
    # As bytes: the library writes metadata in an order that changes from run to run, gives its
    # files a mode of its own and hides the cause of a failure in its text.
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
    """Return metadata and tensors of a safetensors file, after checking the metadata's ``sha256``
    if there is one.
    """
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file; {remedy}")
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
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise ValueError(header)
    if HASH in metadata:
        digest = _digest({**header, _METADATA: {k: v for k, v in metadata.items() if k != HASH}})
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
        if digest.hexdigest() != metadata[HASH]:
            raise CheckpointError(
                f"{path} is truncated or was changed since it was written; {remedy}"
            )
    return metadata


def _digest(header: dict[str, Any]) -> hashlib._Hash:
    return hashlib.sha256(_canonical(header))


def _canonical(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def save_checkpoint(
    folder: Path,
    model: AWDLSTM,
    *,
    dictionary_sha256: str,
    training: dict[str, Any],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model to ``folder``.

    The weights file carries configuration and dictionary hash in its own header, so that weights
    and shape can never disagree; ``config.json`` repeats them for people, with ``training``: how
    the model came about. Both are written in full before either takes its place, so a save that
    fails leaves the older checkpoint as it was.

    Args:
        folder: created if missing; an older checkpoint there is replaced file by file.
        dictionary_sha256: hash of the dictionary whose ids the model reads.
        training: JSON object, e.g. command, seed, curve, versions.
        dtype: storage type of the weights, float16 halves the size.
    """
    tensors = {
        name: value.detach().cpu().to(dtype).contiguous()
        for name, value in model.state_dict().items()
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
        config.write_text(json.dumps(sealed(document), indent=2) + "\n", encoding="utf-8")
        # Weights without config.json load, weights with another's config.json do not, so a kill in
        # between is harmless.
        (folder / CONFIG).unlink(missing_ok=True)


def load_checkpoint(folder: Path, *, dictionary_sha256: str | None = None) -> AWDLSTM:
    """Read a model in float32 and evaluation mode.

    Args:
        folder: as written by :func:`save_checkpoint`.
        dictionary_sha256: hash of the dictionary in use; ``None`` where the caller takes the
            checkpoint's.

    Raises:
        CheckpointError: missing, truncated or altered file, another format, or another dictionary.
    """
    path = folder / WEIGHTS
    if not path.exists():
        raise CheckpointError(
            f"no checkpoint at {path}; train one with hebblm-train or name another folder"
        )
    header, tensors = read_file(path, REMEDY)
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {header.get('format')!r}, not {FORMAT!r}; retrain it"
        )
    stored = header.get("dictionary_sha256", "")
    if dictionary_sha256 is not None and stored != dictionary_sha256:
        raise CheckpointError(
            f"checkpoint {folder} was trained with dictionary {stored[:12]}, not "
            f"{dictionary_sha256[:12]}; "
            "use the corpus and normalisation it was trained on"
        )
    recorded = read_config(folder).get("weights_sha256")
    if recorded is None and HASH not in header:
        raise CheckpointError(f"{folder / CONFIG} is missing or has no hash of {path}; {REMEDY}")
    if recorded is not None and recorded != file_sha256(path):
        raise CheckpointError(f"{path} does not match the sha256 in {CONFIG}; {REMEDY}")
    config = _fitting(header.get("config", ""), tensors, path)
    with torch.device("meta"):  # without drawing weights, which are replaced
        model = AWDLSTM(config)
    # Copies, for what is read may still be a view of the file.
    weights = {name: value.to(torch.float32, copy=True) for name, value in tensors.items()}
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _fitting(text: str, tensors: dict[str, Tensor], path: Path) -> AWDLSTMConfig:
    """Return the shape of a model with exactly these tensors, without allocating it."""
    try:
        config = msgspec.json.decode(text, type=AWDLSTMConfig)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CheckpointError(
            f"the header of {path} says no shape of a model ({error}); {REMEDY}"
        ) from error
    longest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    wanted: dict[str, tuple[int, ...]] = {}
    # No weight of a model is shorter than its sizes, nor are there fewer of them than layers.
    if config.layers <= len(tensors) and longest >= max(
        config.vocabulary_size, *(width for widths in config.layer_sizes() for width in widths)
    ):
        with torch.device("meta"):
            wanted = {
                name: tuple(tensor.shape) for name, tensor in AWDLSTM(config).state_dict().items()
            }
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != wanted:
        raise CheckpointError(f"{path} has other tensors than its header says; {REMEDY}")
    return config


def save_state(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one file, so that they cannot be of different moments."""
    header = {"format": STATE_FORMAT, "record": json.dumps(record, allow_nan=False)}
    with replacing(path) as temporary:
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
            temporary,
            header,
        )


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
    """Restore what :func:`pack_optimizer` took; the parameter groups keep their present
    settings.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
