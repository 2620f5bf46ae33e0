"""A reader that keeps up with a folder: it reads new and changed files, and answers at a prompt."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from hebblm.cli.common import tell
from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.files import lack
from hebblm.interrupts import handled
from hebblm.progress import say
from hebblm.text.sources import TextFile, pieces, text_files

if TYPE_CHECKING:  # loads torch
    from hebblm.reader import Reader

PIECE = 1 << 18  # characters that are read at once
LOOK = 1.0  # seconds between two checks of the folder


def check_watch(folder: Path, save: Path | None) -> None:
    """Refuse a folder that cannot be watched, and a folder for the reader among the texts."""
    if not folder.is_dir():
        raise UserError(f"--watch {folder} {lack(folder)}; name a folder of texts")
    if save is not None and save.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"--save {save} is in {folder}, and would be read as a text; name a folder outside it")


def default_folder(model: Path, folder: Path) -> Path:
    """Return where a reader without ``--save`` is kept: in the cache, a folder for each model and folder of texts."""
    texts = folder.resolve()
    name = model.resolve() if model.exists() else model
    digest = sha256(f"{name}\n{texts}".encode()).hexdigest()
    return cache_dir() / "readers" / f"{texts.name}-{digest[:8]}"


class Watch:
    """A reader, the folder that it watches, and its own folder.

    Args:
        reader: goes on from the texts that it read before.
        folder: folder of texts.
        save: folder of the reader.
        column: column of records that holds the text.
        answer: shows what the reader expects after a line.
    """

    def __init__(
        self, reader: Reader, folder: Path, save: Path, column: str | None, answer: Callable[[str], None]
    ) -> None:
        from hebblm.journal import learned  # it loads torch

        self._reader, self._folder, self._save, self._column, self._answer = reader, folder, save, column, answer
        self._error = ""  # the last one printed
        self._seen: dict[str, tuple[int, int]] = {}  # time of change and size of a file, by name
        self._read: dict[str, str] = {}  # hash of the text read of each
        for text in learned(reader.journal.record):
            self._read[text.name] = self._read.get(text.name, "") + "".join(text.texts)
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._stopped = self._ended = False  # by Ctrl-C; the lines

    def run(self, *, interactive: bool) -> None:
        """Read new text again and again, until Ctrl-C or the end of the lines; keep everything read."""
        with handled(self._stop):
            self._read_changed()
            if interactive:
                threading.Thread(target=self._take_lines, daemon=True).start()
            while not self._stopped and not self._ended:
                self._answer_lines(LOOK)
                self._read_changed()
        tell(f"all that was read is in {self._save}; run the same command to continue")

    def _stop(self, signal: int, frame: object) -> None:
        self._stopped = True

    def _take_lines(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.rstrip("\r\n"))
        self._lines.put(None)

    def _answer_lines(self, wait: float) -> None:
        """Answer the lines typed so far, after waiting so many seconds for the first."""
        with suppress(Empty):
            while not self._stopped and (line := self._lines.get(timeout=wait)) is not None:
                self._answer(line)
                wait = 0.0
            self._ended = not self._stopped

    def _read_changed(self) -> None:
        for file in self._changed():
            if not self._stopped:
                self._read_file(file)

    def _changed(self) -> Iterator[TextFile]:
        """Return the files of text that are new or have changed since they were read."""
        try:
            files = text_files([self._folder], self._column)
        except UserError as error:
            if str(error) != self._error:
                say(str(error))
            self._error = str(error)
            return
        for file in files:
            try:
                found = file.path.stat()
            except OSError:  # gone meanwhile
                continue
            state = (found.st_mtime_ns, found.st_size)
            if self._seen.get(str(file)) != state:
                self._seen[str(file)] = state
                yield file

    def _read_file(self, file: TextFile) -> None:
        """Read a file, and forget its former text; a file that cannot be read waits until it changes."""
        name = str(file)
        try:
            texts = [*pieces(file, PIECE)]
        except UserError as error:
            say(f"{error}; it will be read once it changes")
            return
        whole = "".join(texts)
        if not whole.strip() or self._read.get(name) == whole:
            return
        tokens = 0
        try:
            if name in self._read:
                self._reader.forget(name, replay=True, progress=self._between)
            for part in self._reader.read_pieces(texts, name=name, progress=self._between):
                tokens += len(part)
        except KeyboardInterrupt:
            say(f"{file} was not read to its end; it will be read again next time")
        self._read[name] = whole
        self._reader.begin()  # questions start at the beginning of a text
        self._reader.save(self._save)
        tell(f"{file}: {tokens:,} tokens read")

    def _between(self, done: int, total: int) -> None:
        """Answer between two intervals of a text."""
        self._answer_lines(0.0)
        if self._stopped:
            raise KeyboardInterrupt
