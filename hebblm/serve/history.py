"""What clients let the server learn, in a file that only grows and is on the disk before a client
hears of it.

A reader is saved whole, which takes time. What was learned since is here, and is learned again at
the start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hebblm.errors import UserError
from hebblm.io.files import write_bytes


class LearnedText(msgspec.Struct, frozen=True, tag="learned"):
    """A document; it replaces an earlier one of that name."""

    name: str
    read: str  # when, to the microsecond, which tells it from others of its name
    text: str


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """The name of a document that is no longer known."""

    name: str


Item = LearnedText | Forgotten


class LearnedHistory:
    """The file of a history.

    A line that was cut short by a kill or a full disk is left out when the file is opened: nobody
    was told that it is kept.

    Args:
        path: the file; it is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.items: list[Item] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            known = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise UserError(f"{path} cannot be used ({error}); choose another folder") from error
        size = 0
        for line in known.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                self.items.append(msgspec.json.decode(line, type=Item))
            except msgspec.DecodeError as error:
                raise UserError(
                    f"{path} was changed at byte {size:,} ({error}); move it away to go on from "
                    "what was saved before"
                ) from error
            size += len(line)
        self._file = path.open("ab")
        if size < len(known):
            self._file.truncate(size)
        self._sync()
        sync_folder(path.parent)

    def append(self, item: Item) -> None:
        """Write an item; when this returns, it is on the disk."""
        size = self._file.tell()
        try:
            self._file.write(msgspec.json.encode(item) + b"\n")
            self._sync()
        except BaseException:
            self._file.truncate(size)  # half a line would hide those after it
            raise
        self.items.append(item)

    def keep(self, items: Sequence[Item]) -> None:
        """Replace the history by items that are not in the saved reader."""
        lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
        write_bytes(self._path, lines)
        self._file.close()
        self._file = self._path.open("ab")
        self._sync()
        sync_folder(self._path.parent)
        self.items = [*items]

    def close(self) -> None:
        self._file.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def present(items: Sequence[Item]) -> dict[str, LearnedText | None]:
    """Return the last item of each document, in the order of reading; None if it is forgotten."""
    latest: dict[str, LearnedText | None] = {}
    for item in items:
        latest.pop(item.name, None)
        latest[item.name] = item if isinstance(item, LearnedText) else None
    return latest


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
