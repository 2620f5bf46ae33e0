"""Finding a file of the manifest: data folders first, then a verified download into the user's cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hebblm.download import download
from hebblm.errors import UserError, unreadable
from hebblm.files import sha256
from hebblm.text.manifest import CorpusEntry, FileEntry


def cache_dir() -> Path:
    """Return the user's cache: ``$HEBBLM_CACHE``, or ``~/.cache/hebblm``.

    Raises:
        UserError: neither is known.
    """
    try:
        return Path(os.environ.get("HEBBLM_CACHE") or Path.home() / ".cache" / "hebblm")
    except RuntimeError as error:
        raise UserError("no home folder is known; set HEBBLM_CACHE to a folder that you can write") from error


def data_dirs() -> tuple[Path, ...]:
    """Return the folders where data is looked for: ``$HEBBLM_DATA``, ``data/``, the cache."""
    named = os.environ.get("HEBBLM_DATA")
    return (*((Path(named),) if named else ()), Path("data"), cache_dir() / "data")


def locate(entry: CorpusEntry, split: str, folders: Sequence[Path]) -> Path:
    """Return the verified path of one split, downloading it if no folder has it.

    Args:
        entry: the corpus.
        split: the split.
        folders: where to look, first come first served.

    Raises:
        UserError: a file found or fetched is not the one of the manifest, or it cannot be fetched.
    """
    file = entry.files[split]
    for folder in folders:
        path = folder / file.path
        if path.is_file():
            return _verified(path, file)
    target = cache_dir() / "data" / file.path
    mirrored = f"{entry.name}/{split}.txt"
    what = f"the {split} split of {entry.name}"
    download(what, target, place=file.path, mirrored=mirrored, urls=file.urls, sha256=file.sha256)
    return target


def _verified(path: Path, file: FileEntry) -> Path:
    """Return the path if its bytes are those of the manifest."""
    try:
        found = sha256(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if found != file.sha256:
        raise UserError(f"{path} has sha256 {found}, not {file.sha256}; remove it or put the original file there")
    return path
