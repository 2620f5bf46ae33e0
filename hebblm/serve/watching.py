"""A folder of texts that a memory keeps up with."""

from __future__ import annotations

import threading
from pathlib import Path

from hebblm.errors import UserError
from hebblm.runtime.progress import log
from hebblm.serve.errors import ApiError
from hebblm.serve.memories import NamedMemory
from hebblm.text.formats import is_text
from hebblm.text.sources import TextFile, text_files, text_parts

LOOK = 1.0  # seconds between two looks
PART_SIZE = 1 << 18  # characters that are read at once
Stamp = tuple[int, int]
"""Time of change and size of a file."""


class WatchedFolder:
    """Reads new and changed files of a folder, and forgets those that were deleted.

    A file whose folder is empty or gone is kept: a disk may not be mounted. A file that a client
    let the memory forget is not read again before it changes.

    Args:
        memory: learns.
        folder: of texts.
    """

    def __init__(self, memory: NamedMemory, folder: Path) -> None:
        self._memory, self._folder = memory, folder.absolute()
        self._seen: dict[str, Stamp] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        said = ""
        while not self._stopping.is_set():
            try:
                self._look()
                said = ""
            except (UserError, OSError, ApiError) as error:
                if str(error) != said:
                    log(f"{self._folder}: {error}")
                said = str(error)
            self._stopping.wait(LOOK)

    def _look(self) -> None:
        present = [path for path in self._folder.rglob("*") if is_text(path) and path.is_file()]
        self._forget_deleted({str(path) for path in present})
        known = {document.name: document.bytes for document in self._memory.published.documents}
        for file in text_files(present) if present else ():
            if self._stopping.is_set():
                return
            self._read(file, known.get(str(file.path)))

    def _read(self, file: TextFile, known: int | None) -> None:
        """Learn a file that is new, or that has changed since it was seen."""
        name, now = str(file.path), file.path.stat()
        stamp = now.st_mtime_ns, now.st_size
        if self._seen.get(name) == stamp:
            return
        text = "".join(text_parts(file, PART_SIZE))
        first = name not in self._seen
        self._seen[name] = stamp
        size = len(text.encode())
        if not text.strip() or (first and known == size):
            return
        if first and self._memory.forgotten.covers(name, stamp[0], size):
            return
        self._memory.learn(text, name)

    def _forget_deleted(self, present: set[str]) -> None:
        """Forget the files of this folder that are gone, unless all of them are."""
        if not present:
            return
        for document in self._memory.published.documents:
            in_folder = Path(document.name).is_relative_to(self._folder)
            if in_folder and document.name not in present:
                self._seen.pop(document.name, None)
                self._memory.forget(document.name, file_gone=True)
