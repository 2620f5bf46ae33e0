"""Memories by name: each learns from documents, one after the other, while questions are answered
from what it had learned before.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Full, Queue

from hebblm.errors import UserError
from hebblm.reader.checkpoint import READER
from hebblm.reader.history import LearnedDocument, WrittenSpan, laid_out
from hebblm.reader.inputs import check_text, name_of
from hebblm.reader.reader import Reader
from hebblm.runtime.progress import log
from hebblm.serve.blocked import BlockedWords, folder_of
from hebblm.serve.config import Limits
from hebblm.serve.errors import ApiError
from hebblm.serve.forgotten import ForgottenDocuments
from hebblm.serve.history import Forgotten, LearnedHistory, LearnedText, present
from hebblm.serve.seats import Seats

DEFAULT = "default"
BASE = "base"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SAVED = 64  # items of a history after which the reader is saved whole
PUBLISHED = 2.0  # seconds between two states that questions see, while documents wait
HISTORY, SAVED_READER = "history.jsonl", "reader"
Opens = Callable[[Path | None], Reader]


class _Stopped(BaseException):
    """The server ends while a document is read; it is read again at the next start."""


@dataclass(frozen=True, slots=True)
class Published:
    """What questions see of a memory: all of it as it was after some document.

    Args:
        seats: places to ask from.
        documents: those learned.
        laid: how their tokens lie in the memory.
        entries: number of entries.
    """

    seats: Seats
    documents: tuple[LearnedDocument, ...]
    laid: tuple[WrittenSpan, ...]
    entries: int


@dataclass(frozen=True, slots=True)
class MemoryFolders:
    """Where a memory is kept.

    Args:
        reader: folder of the saved reader.
        extras: folder of the history and the words never to suggest.
    """

    reader: Path
    extras: Path


class NamedMemory:
    """A memory that learns from documents in a thread of its own.

    Args:
        name: of the memory.
        opens: opens a reader, of a folder or empty.
        places: where it is kept; None keeps nothing.
        limits: of documents.
        counted: called with the number of tokens of each document that was learned.

    Raises:
        UserError: the folder cannot be used.
    """

    def __init__(
        self,
        name: str,
        opens: Opens,
        places: MemoryFolders | None,
        limits: Limits,
        counted: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self.name, self._places, self._limits, self._counted = name, places, limits, counted
        self._history: LearnedHistory | None = None
        extras = None if places is None else places.extras
        self._blocked, self.forgotten = BlockedWords(extras), ForgottenDocuments(extras)
        saved = None
        if places is not None:
            saved = places.reader if (places.reader / READER).is_file() else None
            self._history = LearnedHistory(places.extras / HISTORY)
        self.reader = opens(saved)
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._partly = False  # whether the reader holds a part of a document
        self._unsaved = len(self._history.items) if self._history is not None else 0
        self._waiting: Queue[tuple[LearnedText | Forgotten, Future[None]]] = Queue(limits.learning)
        self._replay()
        self.published = self._snapshot()
        self._thread = threading.Thread(target=self._work, name=f"learn {name}", daemon=True)
        self._thread.start()

    # Learning

    def learn(self, text: str, name: str | None = None) -> tuple[str, Future[None]]:
        """Keep a document, and learn it as soon as those before it are learned.

        Args:
            text: of the document.
            name: an earlier document of that name is replaced; None gives one.

        Returns:
            The name, and what ends when questions see the document.

        Raises:
            UserError: a text or a name that no reader can learn.
            ApiError: too many documents wait.
        """
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        name = name_of(name) or f"document of {now}"
        check_text(text)
        if not text.strip():
            raise UserError("the document has no text; give some")
        done = self._keep(LearnedText(name, now, text))
        self.forgotten.drop(name)
        return name, done

    def forget(self, name: str, *, file_gone: bool = False) -> Future[None]:
        """Forget a document.

        Args:
            name: of the document.
            file_gone: whether the reason is that its file was deleted. Otherwise a file of that
                name is not read again before it changes.

        Raises:
            ApiError: no such document.
        """
        sizes = {document.name: document.bytes for document in self.published.documents}
        for item in self.waiting:
            if isinstance(item, LearnedText):
                sizes[item.name] = len(item.text.encode())
        if name not in sizes:
            raise ApiError(404, f"no document is named {name!r:.60}", "name", "not_found")
        if not file_gone:  # first, so that a kill between the two forgets no document halfway
            self.forgotten.add(name, sizes[name])
        return self._keep(Forgotten(name))

    @property
    def waiting(self) -> tuple[LearnedText | Forgotten, ...]:
        """What is kept but not learned yet."""
        with self._waiting.mutex:
            return tuple(item for item, _ in self._waiting.queue)

    def _keep(self, item: LearnedText | Forgotten) -> Future[None]:
        done: Future[None] = Future()
        with self._writing:
            if self._waiting.full():
                raise ApiError(429, "too many documents wait to be learned; send it later")
            if self._history is not None:
                self._history.append(item)
            with suppress(Full):
                self._waiting.put_nowait((item, done))
        return done

    def _work(self) -> None:
        """Learn what comes, until the server ends."""
        learned: list[Future[None]] = []
        shown = time.monotonic()
        while not self._stopping.is_set():
            try:
                item, done = self._waiting.get(timeout=0.2)
            except Empty:
                continue
            try:
                self._apply(item)
            except _Stopped:
                self._partly = True  # what is saved must not hold a part of a document
                return
            except UserError as error:
                self._drop(item)
                done.set_exception(error)
                continue
            except Exception as error:  # a defect must not end the thread: others wait for it
                log(f"{self.name}: a document could not be learned ({type(error).__name__})")
                self._drop(item)
                done.set_exception(error)
                continue
            learned.append(done)
            if self._waiting.empty() or time.monotonic() - shown > PUBLISHED:
                self.published = self._snapshot()
                shown = time.monotonic()
                for future in learned:
                    future.set_result(None)
                learned = []
            self._unsaved += 1
            if self._unsaved >= SAVED and self._waiting.empty():
                self._try_to_save()

    def _apply(self, item: LearnedText | Forgotten) -> None:
        reader, names = self.reader, {document.name for document in self.reader.documents()}
        if item.name in names:
            reader.forget(item.name, progress=self._between)
        if isinstance(item, LearnedText):
            reader.begin()
            reader.journal.time = item.read
            self._partly = True
            try:
                scores = reader.read(item.text, name=item.name, progress=self._between)
            finally:
                reader.journal.time = None
            self._counted(len(scores))
            self._partly = False
        reader.begin()

    def _drop(self, item: LearnedText | Forgotten) -> None:
        """Forget a document that could not be learned, so that no start tries it again."""
        if self._history is not None and isinstance(item, LearnedText):
            with self._writing:
                self._history.append(Forgotten(item.name))
        names = {document.name for document in self.reader.documents()}
        if self._partly and item.name in names:
            self.reader.forget(item.name)
        self._partly = False
        self.reader.begin()

    def _between(self, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _replay(self) -> None:
        """Learn what a history has and the saved reader has not, and save the reader."""
        if self._history is None or not self._history.items:
            return
        when = {document.name: document.read for document in self.reader.documents()}
        latest = present(self._history.items)
        new = {
            name: item
            for name, item in latest.items()
            if item is not None and when.get(name) != item.read
        }
        gone = [name for name, item in latest.items() if item is None or name in new]
        done = self._forget([name for name in gone if name in when])
        for item in new.values():
            try:
                self._apply(item)
            except UserError as error:
                log(f"{self.name}: {error}; this document is left as it is")
                self._drop(item)
        self.reader.begin()
        if done:  # or each start after a kill would take longer than the one before
            self._try_to_save()

    def _forget(self, names: list[str]) -> bool:
        """Forget documents and return whether all are gone; all at once, for each time all other
        texts are read again.
        """
        if not names:
            return True
        try:
            self.reader.forget(*names)
        except UserError:
            gone = [self._forget_alone(name) for name in names]  # as many as possible
            return all(gone)
        return True

    def _forget_alone(self, name: str) -> bool:
        try:
            self.reader.forget(name)
        except UserError as error:
            log(f"{self.name}: {error}; this document is left as it is")
            return False
        return True

    def _snapshot(self) -> Published:
        reader = self.reader
        return Published(
            Seats(reader.session.snapshot()),
            tuple(reader.documents()),
            tuple(laid_out(reader.journal.record)),
            len(reader),
        )

    # Words never to suggest

    @property
    def blocked(self) -> tuple[str, ...]:
        return self._blocked.words

    def block(self, words: list[str], *, allow: bool) -> None:
        """Never suggest words, in capital or small letters; or allow them again."""
        self._blocked.change(words, allow=allow)

    # Keeping

    def save(self) -> None:
        """Save the reader whole; the history then holds only what came later."""
        if self._places is None or self._history is None or self._partly:
            return
        self.reader.save(self._places.reader)
        with self._writing:
            waits = set(map(id, self.waiting))
            later = [item for item in self._history.items if id(item) in waits]
            self._history.keep(later)
        self._unsaved = len(later)

    def _try_to_save(self) -> None:
        """Save the reader, and go on where the disk does not take it."""
        try:
            self.save()
        except (OSError, UserError) as error:
            log(f"{self.name}: cannot be saved now ({error}); its history keeps what it learned")

    def close(self) -> None:
        """Stop learning, and save what was learned."""
        self._stopping.set()
        self._thread.join()
        if self._history is not None:
            if self._history.items:
                self.save()
            self._history.close()


class Memories:
    """The memories of a server, opened when they are first asked for.

    Args:
        opens: opens a reader, of a folder or empty, by the method that learns.
        base: opens the reader of the unadapted model.
        folder: folder of a saved reader, or of memories by name; None keeps nothing.
        limits: of documents and memories.
        counted: called with the number of tokens of each document that was learned.
    """

    def __init__(
        self,
        opens: Opens,
        base: Callable[[], Reader],
        folder: Path | None,
        limits: Limits,
        counted: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self._opens, self._folder, self._limits, self._counted = opens, folder, limits, counted
        self._lock = threading.Lock()
        self._open: dict[str, NamedMemory] = {}
        unadapted = base()
        unadapted.begin()
        self.base = Published(Seats(unadapted.session.snapshot()), (), (), 0)
        self.get(DEFAULT)

    def get(self, name: str) -> NamedMemory:
        """Return a memory; it is opened, or made, if nobody asked for it before.

        Raises:
            ApiError: a name that no memory can have, or too many memories.
        """
        with self._lock:
            if name in self._open:
                return self._open[name]
            if NAME.fullmatch(name) is None or name == BASE:
                raise ApiError(
                    400,
                    f"memory = {name!r:.60} is not the name of a memory; use letters, digits, . _ "
                    "and -",
                    "memory",
                )
            if len(self._open) >= self._limits.memories:
                raise ApiError(429, f"{self._limits.memories} memories are open already")
            memory = NamedMemory(name, self._opens, self._places(name), self._limits, self._counted)
            self._open[name] = memory
            return memory

    def opened(self) -> list[NamedMemory]:
        """Return the memories that are open."""
        with self._lock:
            return [*self._open.values()]

    def close(self) -> None:
        for memory in self.opened():
            memory.close()

    def _places(self, name: str) -> MemoryFolders | None:
        if self._folder is None:
            return None
        if (self._folder / READER).is_file():  # of hebblm-read, or of Reader.save
            extras = folder_of(self._folder)
            if name == DEFAULT:
                return MemoryFolders(self._folder, extras)
            return MemoryFolders(extras / name / SAVED_READER, extras / name)
        return MemoryFolders(self._folder / name / SAVED_READER, self._folder / name)
