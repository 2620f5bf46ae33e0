"""A reader that keeps up with a folder: reads new and changed files, forgets deleted ones, answers
at a prompt.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from hebblm.cli.common import print_line
from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import lack
from hebblm.runtime.interrupts import handled
from hebblm.runtime.progress import log
from hebblm.text.formats import is_text
from hebblm.text.sources import TextFile, text_files, text_parts

if TYPE_CHECKING:  # loads torch
    from hebblm.reader.reader import Reader

PART_SIZE = 1 << 18  # characters that are read at once
LOOK = 1.0  # seconds between two checks of the folder
Home = dict[Path, tuple[int, int]]
"""The folder of a file and those that it is in, each with its numbers on the disk."""


def check_watch(folder: Path, save: Path | None) -> None:
    """Refuse a folder that cannot be watched, and a folder for the reader among the texts."""
    if not folder.is_dir():
        raise UserError(f"--watch {folder} {lack(folder)}; name a folder of texts")
    if save is not None and save.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"--save {save} is in {folder}, and would be read as a text; name a folder outside it"
        )


def default_folder(model: Path, folder: Path) -> Path:
    """Return where a reader without ``--save`` is kept: in the cache, a folder for each model and
    folder of texts.
    """
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
        self,
        reader: Reader,
        folder: Path,
        save: Path,
        column: str | None,
        answer: Callable[[str], None],
    ) -> None:
        from hebblm.reader.history import learned  # it loads torch

        self._reader = reader
        self._folder = folder
        self._save = save
        self._column = column
        self._answer = answer
        self._said: set[str] = set()  # lines that need no repeating
        self._seen: dict[str, tuple[int, int]] = {}  # time of change and size of a file, by name
        self._homes: dict[str, Home] = {}  # by name of a file, where it was when it was seen last
        texts: dict[str, list[str]] = {}
        for text in learned(reader.journal.record):
            texts.setdefault(text.name, []).extend(text.texts)
        # Hash of the text read of each; none of a text that was not read to its end.
        self._read = {}
        for name, parts in texts.items():
            text_read = "".join(parts)
            self._read[name] = _hash(text_read) if text_read else ""
        self._stuck: set[str] = set()  # names of files that are gone, but cannot be forgotten
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._stopped = self._ended = False  # by Ctrl-C; the lines

    def run(self, lines: Callable[[], Iterator[str]] | None) -> None:
        """Read new text again and again, until Ctrl-C or the end of the lines; keep everything
        read.

        Args:
            lines: gives the lines to answer; None for no lines.
        """
        with handled(self._stop):
            self._read_changed()
            if lines is not None:
                threading.Thread(target=self._take_lines, args=(lines,), daemon=True).start()
            while not self._stopped and not self._ended:
                self._answer_lines(LOOK)
                self._read_changed()
        print_line(f"all that was read is in {self._save}; run the same command to continue")

    def _stop(self, signal: int, frame: object) -> None:
        self._stopped = True

    def _take_lines(self, lines: Callable[[], Iterator[str]]) -> None:
        for line in lines():
            self._lines.put(line)
        self._lines.put(None)

    def forget(self, name: str) -> None:
        """Forget a document, and keep that; a file is read again when it changes.

        Raises:
            UserError: no such document.
        """
        self._reader.forget(name, replay=True)
        self._read.pop(name, None)
        self._reader.begin()
        self._reader.save(self._save)
        print_line(f"{name}: forgotten")

    def _answer_lines(self, wait: float) -> None:
        """Answer the lines typed so far, after waiting so many seconds for the first."""
        with suppress(Empty):
            while not self._stopped and (line := self._lines.get(timeout=wait)) is not None:
                self._answer(line)
                wait = 0.0
            self._ended = not self._stopped

    def _read_changed(self) -> None:
        """Read what is new or has changed, and forget what is gone."""
        files = self._files()
        if files is None:
            return
        gone = self._gone({str(file) for file in files})
        changed = self._changed(files)
        if gone:
            changed = [file for file in changed if not self._renamed(file, gone)]
            self._forget(gone)
        for file in changed:
            if not self._stopped:
                self._read_file(file)

    def _files(self) -> Sequence[TextFile] | None:
        """Return the files of text in the folder, None if they cannot be listed."""
        try:
            return text_files([self._folder], self._column)
        except UserError as error:
            self._say_once(str(error))
        if self._folder.is_dir() and not any(is_text(path) for path in self._folder.rglob("*")):
            return ()
        return None

    def _changed(self, files: Sequence[TextFile]) -> list[TextFile]:
        """Return the files that are new or have changed since they were seen last, and note where
        all of them are.
        """
        changed = []
        homes = dict[Path, Home]()
        for file in files:
            folder = file.path.parent
            name = str(file)
            try:
                now = file.path.stat()
                if not homes.get(folder):
                    homes[folder] = {path: _identity(path) for path in self._up(folder)}
            except OSError:  # gone meanwhile
                continue
            self._homes[name] = homes[folder]
            state = (now.st_mtime_ns, now.st_size)
            if self._seen.get(name) != state:
                self._seen[name] = state
                changed.append(file)
        return changed

    def _gone(self, present: Collection[str]) -> list[str]:
        """Return the names of the files that were read and are deleted."""
        missing = []
        for name in self._read:
            path = Path(name)
            if name not in present and is_text(path) and path.is_relative_to(self._folder):
                missing.append(name)
        self._stuck.intersection_update(missing)
        gone = [name for name in missing if self._is_deleted(name)]
        for name in present:
            self._said.discard(_kept(name))
        for name in missing:
            if name not in gone:
                self._say_once(_kept(name))
        return [name for name in gone if name not in self._stuck]

    def _is_deleted(self, name: str) -> bool:
        """Return whether a file is gone from a folder that is still the same and can be read.

        If the folder was not seen with the file, it must hold something: an empty one may be an
        unmounted disk.
        """
        if os.path.lexists(name):
            return False
        for folder in self._up(Path(name).parent):
            try:
                holds = any(folder.iterdir())
                now = _identity(folder)
            except (FileNotFoundError, NotADirectoryError):  # a folder that is deleted as well
                continue
            except OSError:
                return False
            known = self._homes.get(name, {}).get(folder)
            if known is None:
                return holds
            return known == now
        return False

    def _up(self, folder: Path) -> list[Path]:
        """Return a folder and those that it is in, up to the one that is watched."""
        return [path for path in (folder, *folder.parents) if path.is_relative_to(self._folder)]

    def _renamed(self, file: TextFile, gone: list[str]) -> bool:
        """Return whether a new file holds the text of one that is gone; that text then has the new
        name.
        """
        name = str(file)
        if name in self._read or (texts := self._texts(file)) is None:
            return False
        former = next(
            (gone_name for gone_name in gone if self._read[gone_name] == _hash("".join(texts))),
            None,
        )
        if former is None:
            return False
        gone.remove(former)
        self._reader.rename(former, name)
        self._read[name] = self._read.pop(former)
        self._reader.save(self._save)
        print_line(f"{former} is {name} now")
        return True

    def _forget(self, names: Sequence[str]) -> None:
        """Forget the texts of files that are deleted or empty; one that cannot be forgotten
        stays.
        """
        if not names:
            return
        try:
            self._reader.forget(*names, replay=True, progress=self._between)
        except KeyboardInterrupt:
            log(f"{', '.join(names)}: not forgotten yet; it will be next time")
            return
        except UserError as error:
            log(str(error))
            self._stuck.update(names)
            return
        for name in names:
            del self._read[name]
        self._reader.begin()  # questions start at the beginning of a text
        self._reader.save(self._save)
        print_line(f"{', '.join(names)}: forgotten")

    def _texts(self, file: TextFile) -> list[str] | None:
        """Return the pieces of a file; None for one that cannot be read, which waits until it
        changes.
        """
        from hebblm.reader.inputs import name_of  # it loads torch

        try:
            name_of(str(file))
            return list(text_parts(file, PART_SIZE))
        except UserError as error:
            log(f"{error}; it will be read once it changes")
            return None

    def _read_file(self, file: TextFile) -> None:
        """Read a file, and forget its former text."""
        name = str(file)
        if (texts := self._texts(file)) is None:
            return
        if not "".join(texts).strip():
            self._forget([name] if name in self._read else [])
            return
        whole = _hash("".join(texts))
        if self._read.get(name) == whole:
            return
        tokens = 0
        try:
            if name in self._read:
                self._reader.forget(name, replay=True, progress=self._between)
                del self._read[name]
            for part in self._reader.read_pieces(texts, name=name, progress=self._between):
                tokens += len(part)
        except KeyboardInterrupt:
            log(f"{file} was not read to its end; it will be read again next time")
        except UserError as error:
            log(f"{error}; {file} will be read once it changes")
            if not tokens and name in self._read:
                return
        self._read[name] = whole
        self._reader.begin()  # questions start at the beginning of a text
        self._reader.save(self._save)
        print_line(f"{file}: {tokens:,} tokens read")

    def _between(self, done: int, total: int) -> None:
        """Answer between two intervals of a text."""
        self._answer_lines(0.0)
        if self._stopped:
            raise KeyboardInterrupt

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            log(line)
        self._said.add(line)


def _identity(folder: Path) -> tuple[int, int]:
    """Return the numbers of a folder and its file system; those of a mounted disk are not those of
    the folder below.
    """
    status = folder.stat()
    return status.st_dev, status.st_ino


def _kept(name: str) -> str:
    return (
        f"{name} is not there, but its folder may be unmounted or cannot be read, so what was read "
        "of it is kept"
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
