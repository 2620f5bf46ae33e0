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
    """File of a corpus.

    Args:
        path: below a data folder, such as ``ptb/train.txt``.
        urls: public addresses of these very bytes.
        sha256: of the file.
        bytes: its size.
        lines: its lines, blank ones too.
        tokens: its words with one ``<eos>`` a line.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str
    bytes: Count
    lines: Count
    tokens: Count


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """Named corpus.

    Args:
        name: as on the command line.
        title: what it is.
        kind: ``files`` with known bytes, or ``documentation`` extracted from an installation.
        licence: of the text.
        citation: whom to name.
        files: by split, empty for documentation.
        types: distinct words of the training split with ``<eos>``, None for documentation.
    """

    name: str
    title: str
    kind: Literal["files", "documentation"]
    licence: str
    citation: str
    files: Mapping[str, FileEntry]
    types: int | None


def load_manifest(path: Path | None = None) -> dict[str, CorpusEntry]:
    """Read the manifest.

    Args:
        path: another manifest than the one that came with hebblm.

    Raises:
        UserError: the file is missing, or is not a manifest of this version.
    """
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
    """Return the names of the corpora whose bytes are known, the same on every machine."""
    return [name for name, entry in load_manifest().items() if entry.kind == "files"]
