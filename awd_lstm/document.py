"""JSON document of a checkpoint, read without loading torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

CONFIG = "config.json"
MAX_BYTES = 1 << 24  # the curve of a long training has some hundred thousand
REMEDY = "restore or retrain the checkpoint"
CHECKSUM = "document_sha256"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: missing, truncated, of another format, or for another
    dictionary.
    """


class _Corpus(TypedDict, total=False):
    name: str
    normalization: Literal["raw", "lower"]
    tokenizer: dict[str, Any]
    train_tokens: int
    dictionary_file_sha256: str
    text_sha256: dict[str, str]


class _Training(TypedDict, total=False):
    config: dict[str, Any]
    corpus: _Corpus
    epoch: int
    seconds: float
    valid_perplexity: float


class _Document(TypedDict, total=False):
    format: str
    config: dict[str, Any]
    dictionary_sha256: str
    weights_sha256: str
    dtype: str
    training: _Training


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Document with the hash of its content."""
    return {**document, CHECKSUM: _digest(document)}


def read_config(folder: Path) -> dict[str, Any]:
    """JSON document of a checkpoint, empty if there is none.

    Raises:
        CheckpointError: it is not JSON object, was changed since it was written, or a value is of
            another type.
    """
    path = folder / CONFIG
    text = _text(path)
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON; {REMEDY}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} is not a JSON object; {REMEDY}")
    if CHECKSUM in document and document.pop(CHECKSUM) != _digest(document):
        raise CheckpointError(f"{path} has changed since it was written; {REMEDY}")
    if "model_type" not in document:  # a document of another library, which reads it itself
        try:
            msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{path} does not fit ({error}); {REMEDY}") from error
    return document


def _text(path: Path) -> str | None:
    """Text of a document, None if there is no such file."""
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(f"{path} is not a file; {REMEDY}")
        if path.exists() and path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path} has more than {MAX_BYTES >> 20} MiB; {REMEDY}")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}; {REMEDY}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not valid JSON; {REMEDY}") from error


def _digest(document: dict[str, Any]) -> str:
    """Hash of a JSON document, whatever the order of its keys."""
    plain = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
