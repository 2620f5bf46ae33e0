"""The list of named corpora: where their files come from and what is known to be in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from hebblm.errors import UserError
from hebblm.files import Count, read_json
from hebblm.installation import manifest_path

SCHEMA = "hebblm-corpora/1"
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """File of a corpus."""

    path: str  # below a data folder, such as ``ptb/train.txt``
    urls: tuple[str, ...]  # public addresses of these very bytes
    sha256: str  # of the file
    bytes: Count  # its size
    lines: Count  # its lines, blank ones too
    tokens: Count  # its words with one ``<eos>`` a line


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """Named corpus."""

    name: str  # as on the command line
    title: str  # what it is
    # ``files`` with known bytes, or ``documentation`` extracted from an installation
    kind: Literal["files", "documentation"]
    licence: str  # of the text
    citation: str  # whom to name
    files: Mapping[str, FileEntry]  # by split, empty for documentation
    types: int | None  # distinct words of the training split with ``<eos>``, None for documentation


def load_manifest(path: Path | None = None) -> dict[str, CorpusEntry]:
    path = path or manifest_path()
    document = read_json(path)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UserError(f"{path} is not a list of corpora of schema {SCHEMA}; restore it")
    without: dict[str, object] = {"files": {}, "types": None}
    try:
        listed = {name: {**without, **fields, "name": name} for name, fields in document["corpora"].items()}
        return msgspec.convert(listed, dict[str, CorpusEntry])
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is incomplete ({error}); restore it") from error


def file_corpora() -> list[str]:
    """Names of the corpora whose bytes are known, the same on every machine."""
    return [name for name, entry in load_manifest().items() if entry.kind == "files"]
