"""Words never to suggest, kept next to a memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

import msgspec

from hebblm.errors import UserError
from hebblm.io.files import read_record, write_json

BLOCKED = "blocked.json"


class _Record(msgspec.Struct, frozen=True):
    words: tuple[str, ...] = ()


def folder_of(reader: Path) -> Path:
    """Return the folder for what belongs to a saved reader and is not in it."""
    return reader.with_name(f"{reader.name}.serve")


class BlockedWords:
    """Words never to suggest, in capital or small letters.

    Args:
        folder: where they are kept; None keeps them as long as the process runs.

    Raises:
        UserError: the file there cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / BLOCKED
        self._lock = Lock()
        self.words: tuple[str, ...] = ()
        if self._path is not None and self._path.is_file():
            self.words = read_record(_Record, self._path, "restore it, or delete it").words

    def change(self, words: Iterable[str], *, allow: bool) -> None:
        """Block words, or allow them again.

        Raises:
            UserError: one of them is not a word.
        """
        words = [*words]
        for word in words:
            if not word or any(map(str.isspace, word)):
                raise UserError(f"{word!r:.60} is not a word; give one without spaces")
        folded = {word.casefold() for word in words}
        with self._lock:
            kept = [word for word in self.words if word.casefold() not in folded]
            if not allow:
                kept += words
            self.words = tuple(kept)
            if self._path is not None:
                write_json(self._path, {"words": kept})

    def hides(self, word: str) -> bool:
        """Return whether a word is never suggested."""
        return word.casefold() in {one.casefold() for one in self.words}
