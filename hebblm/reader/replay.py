"""Read a reader's texts again without a document or a word, so that nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import msgspec

from hebblm.adapt.methods import METHODS, unaliased
from hebblm.adapt.renamed import present_settings
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import defaults
from hebblm.io.files import sha256
from hebblm.reader.history import (
    History,
    Item,
    Journal,
    ReaderOpened,
    SplitBy,
    TextPassed,
    TextRead,
    TextsReadAsBatch,
    documents,
    texts_in,
)
from hebblm.reader.session import ReaderSession
from hebblm.runtime.progress import silence
from hebblm.text.striking import struck
from hebblm.text.vocabulary import Vocabulary


class ReplayReader(Protocol):
    """A reader, which records the texts that it reads."""

    @property
    def journal(self) -> Journal: ...

    @property
    def session(self) -> ReaderSession: ...

    def read(self, text: Any, *, progress: Any = ..., name: str | None = ...) -> Any: ...

    def read_pieces(
        self, pieces: Iterable[str], *, progress: Any = ..., name: str | None = ...
    ) -> Iterable[Any]: ...

    def begin(self) -> None: ...

    def save(self, folder: str | Path) -> None: ...


R = TypeVar("R", bound=ReplayReader)
Opens = Callable[[ReaderOpened, Path | None, Mapping[str, Any]], R]
"""Opens a reader as it once was, with or without a memory; the mapping holds values that changed
since then.
"""


def without_documents(record: History, names: Sequence[str]) -> History:
    """Return a record as if some documents had never been read."""
    names_here = [
        text.name
        for item in record.items
        for text in ([item] if isinstance(item, TextPassed) else texts_in(item))
    ]
    for name in names:
        known = [document.name for document in documents(record)]
        if name not in names_here and name in known and record.base is not None:
            raise UserError(
                f"{name} is a text of {record.base.folder}, with which this reader began; build "
                "that memory again "
                "without it, and read the other texts after it"
            )
        if name not in names_here:
            names_known = ", ".join(map(repr, [*dict.fromkeys(known)][:5])) + (
                ", ..." if len({*known}) > 5 else ""
            )
            raise UserError(
                f"no document is named {name!r}; the reader learned from {names_known or 'none'}"
            )
    items: list[Item] = []
    for item in record.items:
        if isinstance(item, TextsReadAsBatch):
            if left := [text for text in item.texts if text.name not in names]:
                items.append(TextsReadAsBatch(left))
        elif not (isinstance(item, TextRead | SplitBy | TextPassed) and item.name in names):
            items.append(item)
    return History(record.base, tuple(items))


def without_word(record: History, word: str, vocabulary: Vocabulary) -> History:
    """Return a record as if a word had been struck out of every text before it was read."""
    if not isinstance(word, str) or not word or any(letter.isspace() for letter in word):
        raise UserError(f"word = {word!r:.60} is not a single word; give one without spaces")
    if record.base is not None:
        raise UserError(
            f"a word cannot be taken out of {record.base.folder}, with which this reader began; "
            "build that memory "
            "again from texts without it"
        )
    items: list[Item] = []
    for item in record.items:
        if isinstance(item, TextsReadAsBatch):
            items.append(TextsReadAsBatch([_struck(text, word, vocabulary) for text in item.texts]))
        else:
            items.append(_struck(item, word, vocabulary) if isinstance(item, TextRead) else item)
    if items == [*record.items]:
        raise UserError(f"{word!r:.60} is in no text that was read; write it as it stands there")
    return History(None, tuple(items))


def _struck(text: TextRead, word: str, vocabulary: Vocabulary) -> TextRead:
    texts = text.texts
    if text.spelled is not None:
        texts = [vocabulary.join(vocabulary.ids_of(text.spelled.tokens))]
    left = struck(texts, word)
    return text if left == texts else msgspec.structs.replace(text, texts=left, spelled=None)


def check_still(record: History, *, whole: bool) -> None:
    """Refuse a record that began with a memory that is gone, or, unless ``whole``, one of a base
    that learns.
    """
    moving = [unaliased(item.method) for item in record.items if isinstance(item, ReaderOpened)]
    moving = [method for method in moving if METHODS[method].uses_dynamic_base]
    if moving and not whole:
        raise UserError(
            f"{moving[0]} learned from all texts in the same weights, so to forget one, the reader "
            "must read all "
            "others again; ask for that with replay=True"
        )
    if record.base is not None:
        path = Path(record.base.folder, record.base.file)
        if not path.is_file() or sha256(path) != record.base.sha256:
            raise UserError(
                f"{record.base.folder}, with which this reader began, is gone or changed, and "
                "nothing can be "
                "forgotten without it; put it back, or read the other texts into a new folder"
            )


def read_again(
    record: History,
    opening: ReaderOpened | None,
    opens: Opens[R],
    progress: Callable[[int, int], None],
) -> R:
    """Return a reader that has read all texts of a record, opened as it was opened last."""
    items = [
        *record.items,
        *([opening] if opening is not None and record.items[-1:] != (opening,) else []),
    ]
    total, done = sum(text.tokens for item in record.items for text in texts_in(item)), 0
    reader, former = None, dict[str, Any]()

    def moved(now: int, _: int) -> None:
        progress(min(done + now, total), total)

    with silence():
        for item in items:
            if isinstance(item, ReaderOpened):
                settings = {
                    name: value
                    for name, value in present_settings(item.settings).items()
                    if name in defaults()
                }
                item = msgspec.structs.replace(
                    item, method=unaliased(item.method), settings=settings
                )
                # A folder keeps its memory as it was built; the opening names its own default.
                asked = {
                    name: value
                    for name, value in settings.items()
                    if former.get(name, value) != value and not name.startswith("memory.")
                }
                former |= settings
                if reader is None:
                    reader = opens(
                        item, None if record.base is None else Path(record.base.folder), {}
                    )
                    continue
                # A reader that goes on from a folder may differ in the last bit from one that never
                # stopped.
                with TemporaryDirectory(prefix="hebblm-") as folder:
                    reader.save(Path(folder, "reader"))
                    reader = opens(item, Path(folder, "reader"), asked)
                continue
            assert reader is not None, "a record begins with how its reader was opened"
            _read_again(reader, item, moved)
            done += sum(text.tokens for text in texts_in(item))
    assert reader is not None, "a record begins with how its reader was opened"
    reader.journal.time = None
    progress(total, total)
    return reader


def _read_again(reader: ReplayReader, item: Item, progress: Callable[[int, int], None]) -> None:
    if texts := texts_in(item):
        reader.journal.time = texts[0].read
    if isinstance(item, TextsReadAsBatch):
        documents = [text.spelled or text.texts[0] for text in texts]
        names = [text.name for text in texts]
        together = dict(zip(names, documents, strict=True)) if all(names) else documents
        reader.read(together, progress=progress)
    elif isinstance(item, TextRead) and len(item.texts) > 1:
        for _ in reader.read_pieces(item.texts, name=item.name):
            pass
    elif isinstance(item, TextRead):
        text = item.texts[0] if item.spelled is None else item.spelled
        reader.read(text, progress=progress, name=item.name)
    elif isinstance(item, SplitBy):
        reader.journal.split(item.name, item.splitting)
    elif isinstance(item, TextPassed):
        reader.journal.passed(item)
        reader.session.begin_text()
    else:
        reader.begin()
