"""The list of named corpora: where their files come from and what is known to be in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hebblm.errors import UserError
from hebblm.files import read_json
from hebblm.installation import manifest_path

SCHEMA = "hebblm-corpora/1"
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a corpus.

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
    bytes: int
    lines: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One named corpus.

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
    try:
        return {name: _entry(name, fields) for name, fields in document["corpora"].items()}
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is incomplete ({error}); restore it") from error


def file_corpora() -> list[str]:
    """Return the names of the corpora whose bytes are known, the same on every machine."""
    return [name for name, entry in load_manifest().items() if entry.kind == "files"]


def _entry(name: str, fields: dict[str, Any]) -> CorpusEntry:
    """Return one corpus of the manifest."""
    files = {
        split: FileEntry(**{**file, "urls": tuple(file["urls"])})
        for split, file in fields.get("files", {}).items()
    }
    return CorpusEntry(
        name=name,
        title=fields["title"],
        kind=fields["kind"],
        licence=fields["licence"],
        citation=fields["citation"],
        files=files,
        types=fields.get("types"),
    )
