"""Weights of a GGUF file, kept unpacked in a folder next to it: unpacking them takes most of the
time of a start.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.io.files import atomic_path, read_json, sha256, write_json
from hebblm.io.locks import file_lock
from hebblm.runtime.progress import log

RECORD = "unpacked.json"


def folder_of(path: Path) -> Path:
    """Return the folder for the weights of a GGUF file."""
    return path.with_suffix(".unpacked")


def is_whole(folder: Path, gguf_sha256: str) -> bool:
    """Whether a folder holds the weights of that file, each of its files as it was written; if not,
    it is removed.
    """
    if not folder.is_dir():
        return False
    try:
        record = read_json(folder / RECORD)
        if record["gguf_sha256"] == gguf_sha256 and all(
            sha256(folder / name) == digest for name, digest in record["files"].items()
        ):
            return True
    except (UserError, OSError, KeyError, TypeError, AttributeError):
        pass  # damaged, or not such a folder
    log(f"{folder} was changed; its weights are unpacked again")
    shutil.rmtree(folder)
    return False


def keep(folder: Path, gguf_sha256: str, model: Any, tokenizer: Any) -> None:
    """Write a model and its tokenizer to a folder, whole or not at all."""
    with file_lock(folder, "unpacked weights"):
        if folder.is_dir():  # another process was faster
            return
        with atomic_path(folder, directory=True) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
            write_json(temporary / RECORD, {"gguf_sha256": gguf_sha256, "files": files})
