"""Documents that a client let a memory forget, kept next to it: a watched file among them is not
read again before it changes.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Lock

import msgspec

from hebblm.io.files import read_record, write_json

FORGOTTEN = "forgotten.json"


class _ForgottenFile(msgspec.Struct, frozen=True):
    at: int  # nanoseconds since 1970
    bytes: int | None  # of its text


class _ForgottenRecord(msgspec.Struct, frozen=True):
    documents: dict[str, _ForgottenFile] = {}


class ForgottenDocuments:
    """Names of documents that were forgotten, until they are learned again.

    Args:
        folder: where they are kept; None keeps them as long as the process runs.

    Raises:
        UserError: the file there cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FORGOTTEN
        self._lock = Lock()
        self._documents: dict[str, _ForgottenFile] = {}
        if self._path is not None and self._path.is_file():
            record = read_record(_ForgottenRecord, self._path, "restore it, or delete it")
            self._documents = dict(record.documents)

    def add(self, name: str, size: int | None) -> None:
        """Keep the name of a document that is forgotten now, and the bytes of its text."""
        with self._lock:
            self._documents[name] = _ForgottenFile(time.time_ns(), size)
            self._write()

    def drop(self, name: str) -> None:
        """A document is learned again."""
        with self._lock:
            if self._documents.pop(name, None) is not None:
                self._write()

    def covers(self, name: str, changed: int, size: int) -> bool:
        """Return whether a file is one that was forgotten, and is the same since.

        Args:
            name: of the file.
            changed: when it was changed last, nanoseconds since 1970.
            size: bytes of its text.
        """
        document = self._documents.get(name)
        return document is not None and changed <= document.at and document.bytes in (None, size)

    def _write(self) -> None:
        if self._path is not None:
            write_json(self._path, {"documents": msgspec.to_builtins(self._documents)})
