"""Record of the texts that a reader read, in order: enough to read them again without one of
them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import msgspec

from hebblm.errors import UserError
from hebblm.memory.persistence import SourceText
from hebblm.reader.config import OpenedConfig
from hebblm.reader.inputs import Spelled
from hebblm.runtime.progress import silence
from hebblm.text.fitting import Chosen
from hebblm.text.vocabulary import Vocabulary


class LearnedDocument(NamedTuple):
    """A document that a reader learned from; None stands for numbers that the memory it began with
    does not have.
    """

    name: str  # "" for text without a name
    tokens: int | None
    bytes: int | None
    words: int | None  # new to the model and to the texts before it
    read: str | None  # when it was read last


class WrittenSpan(NamedTuple):
    """A text, or several side by side, as their tokens were written to a memory."""

    names: tuple[str | None, ...]
    lengths: tuple[int, ...] | None  # of each, in tokens; None if not known
    every: int = 1  # tokens of each text that were written at a time, for several texts
    pieces: tuple[int, ...] = ()  # lengths of the pieces in which a memory of texts was built


class ReaderOpened(OpenedConfig, frozen=True, kw_only=True, tag="opened", omit_defaults=True):
    """How a reader was opened for what follows; its settings are those of method and memory."""

    splitting: Chosen | None  # as requested
    words: tuple[str, ...]  # new ones that its vocabulary had before
    reading: dict[str, int]  # what the model's states depend on besides weights and tokens


class TextRead(msgspec.Struct, tag="read", omit_defaults=True):
    """Text of one call."""

    name: str
    learned: bool  # False in the files of earlier versions alone
    read: str  # when
    tokens: int
    bytes: int
    words: int  # new to the texts before it
    texts: list[str] = []  # as they came, one or more; empty if only the tokens are known
    spelled: Spelled | None = None


class TextsReadAsBatch(msgspec.Struct, tag="side by side"):
    """Texts that were read at once."""

    texts: list[TextRead]


class TextStarted(msgspec.Struct, frozen=True, tag="began"):
    """The reader moved to the beginning of a text."""


class SplitBy(msgspec.Struct, frozen=True, tag="split"):
    """How a text splits all others if it is the first; the reader keeps nothing else of it."""

    name: str
    splitting: Chosen


class TextPassed(msgspec.Struct, frozen=True, tag="passed"):
    """The reader went through a text without learning from it; the text itself is not kept.

    At the end of a record it stands in that text. Read again, what follows begins anew.
    """

    name: str
    splitting: Chosen | None  # of all others if it is the first; None without words


Item = ReaderOpened | TextRead | TextsReadAsBatch | TextStarted | SplitBy | TextPassed
N = TypeVar("N", bound=TextRead | SplitBy | TextPassed)


class FirstMemory(msgspec.Struct, frozen=True):
    """A memory that a reader began with."""

    folder: str
    file: str  # in that folder; its sha256 identifies the memory
    sha256: str
    texts: tuple[SourceText, ...]


class History(msgspec.Struct, frozen=True):
    """All texts that a reader read."""

    base: FirstMemory | None = None
    items: tuple[Item, ...] = ()


class OpenText:
    """A text while it is read.

    Args:
        name: name of the document.
        learned: whether the reader learns from it.
        read: time of reading.
        text: the text, its pieces as they come, or its known tokens; None for ids.
    """

    def __init__(
        self, name: str, learned: bool, read: str, text: str | list[str] | Spelled | None
    ) -> None:
        self.name, self.learned, self.read = name, learned, read
        self._spelled = (
            text if isinstance(text, Spelled) else Spelled((), 0) if text is None else None
        )
        self._texts = [text] if isinstance(text, str) else text if isinstance(text, list) else []
        self._whole = False
        self.tokens = array("q")  # ids of those that were read
        self.bytes = 0

    def end(self) -> None:
        """Mark the text as read to its end."""
        self._whole = bool(self._texts)

    def item(self, vocabulary: Vocabulary, rows: int) -> TextRead:
        """Return the record of the text; ``rows`` is the number of words before it."""
        ids, size, spelled = self.tokens.tolist(), self.bytes, self._spelled
        if not self._whole:
            spelled = spelled or Spelled(
                (), 0, vocabulary.splitting, _fits(vocabulary, self._texts)
            )
            size = size or len(vocabulary.join(ids).encode())
            spelled = msgspec.structs.replace(spelled, tokens=vocabulary.lasting(ids), bytes=size)
        words = len({index for index in ids if index >= rows})
        texts = [] if spelled else self._texts
        return TextRead(self.name, self.learned, self.read, len(ids), size, words, texts, spelled)

    def passed(self, vocabulary: Vocabulary) -> TextPassed:
        """Return the record of a text that was not learned: its name, and how it splits others."""
        return TextPassed(
            self.name,
            _fits(vocabulary, self._texts) if self._spelled is None else self._spelled.fits,
        )


class Journal:
    """Journal of a reader's texts.

    Args:
        vocabulary: the reader's vocabulary.
        record: texts that were read before.
        opening: how the reader is opened; it joins the items before the next text, or at the end if
            it is new.
    """

    def __init__(self, vocabulary: Vocabulary, record: History, opening: ReaderOpened) -> None:
        self.base = record.base
        self.time: str | None = None  # of reading the texts that follow; None for the present
        self.opening: ReaderOpened | None = opening
        self._vocabulary = vocabulary
        self._items = _without_unlearned(record.items, vocabulary)
        self._open: tuple[OpenText, ...] = ()  # being read now,
        self._together = False  # side by side or alone
        self._rows = 0  # words there were before these

    @property
    def record(self) -> History:
        """All texts so far; of the text that is being read, the part learned so far."""
        items = _then(self._items, self._taken_down())
        former = next((item for item in reversed(items) if isinstance(item, ReaderOpened)), None)
        return History(
            self.base, (*items, *([self.opening] if self.opening not in (None, former) else []))
        )

    def _add(self, *items: Item) -> None:
        """Add items; a new opening comes before them."""
        if self.opening is not None and self._items[-1:] != [self.opening]:
            self._items.append(self.opening)
        self.opening = None
        self._items += items

    @property
    def begins(self) -> bool:
        """Whether the reader stands at the beginning of a text."""
        if self._open:
            return False
        return self._last() is None or isinstance(self._last(), TextStarted | TextsReadAsBatch)

    def goes_on(self, name: str) -> bool:
        """Return whether a text of this name goes on from where the reader stands."""
        self._close()
        last = self._last()
        return (
            name == ""
            if last is None
            else isinstance(last, TextRead | TextPassed) and last.name == name
        )

    def begin(self, readings: Sequence[OpenText], rows: int, *, together: bool) -> None:
        """Begin to record one text, or several side by side."""
        self._close()
        self._add()
        self._open, self._rows, self._together = tuple(readings), rows, together

    def reads(self, reading: OpenText) -> bool:
        """Return whether a text is still being recorded."""
        return reading in self._open

    def now(self) -> str:
        return self.time or datetime.now(UTC).isoformat(timespec="seconds")

    def began(self) -> None:
        """Record a move to the beginning of a text; of texts just before it that were not learned
        nothing is kept.
        """
        self._close()
        passed: list[TextPassed | SplitBy] = []
        while self._items and isinstance(last := self._items[-1], TextPassed | SplitBy):
            self._items.pop()
            passed = [last, *passed]
        for text in passed:
            self.split(text.name, text.splitting)
        if isinstance(self._last(), TextRead | None):
            self._add(TextStarted())

    def passed(self, text: TextPassed) -> None:
        """Record a text that was passed when this record was first made."""
        self._close()
        self._add()
        if text.splitting is not None and self._vocabulary.splitting is None:
            self._vocabulary.split(text.splitting)
        self._items = _then(self._items, [text])

    def rename(self, name: str, other: str) -> None:
        """Give the texts of a document another name, which no text has: they might go on from one
        another.
        """
        self._close()
        names = {event.name for event in self._named()}
        if name not in names:
            raise UserError(f"no document is named {name!r:.60}; documents() lists their names")
        if other in {*names, *(document.name for document in documents(self.record))}:
            raise UserError(f"another document is named {other!r:.60}; choose another name")
        for number, item in enumerate(self._items):
            if isinstance(item, TextsReadAsBatch):
                self._items[number] = TextsReadAsBatch(
                    [_renamed(text, name, other) for text in item.texts]
                )
            elif isinstance(item, TextRead | SplitBy | TextPassed):
                self._items[number] = _renamed(item, name, other)

    def _named(self) -> list[TextRead | SplitBy | TextPassed]:
        """Return all that has the name of a document."""
        events: list[TextRead | SplitBy | TextPassed] = []
        for item in self._items:
            if isinstance(item, SplitBy | TextPassed):
                events.append(item)
            else:
                events += texts_in(item)
        return events

    def split(self, name: str, splitting: Chosen | None) -> None:
        """Keep how a text splits the others if it is the first, once per name."""
        self._close()
        if splitting is None:
            return
        if self._vocabulary.splitting is None:
            self._vocabulary.split(splitting)
        if not any(isinstance(item, SplitBy) and item.name == name for item in self._items):
            self._add(SplitBy(name, splitting))

    def _last(self) -> Item | None:
        """Return the item that says where the reader stands."""
        for item in reversed(self._items):
            if not isinstance(item, ReaderOpened | SplitBy):
                return item
        return None

    def _taken_down(self) -> Sequence[Item]:
        if not all(text.learned for text in self._open):
            return [text.passed(self._vocabulary) for text in self._open]
        texts = [text.item(self._vocabulary, self._rows) for text in self._open]
        if self._together and texts:
            return [TextsReadAsBatch(texts)]
        return texts

    def _close(self) -> None:
        self._items = _then(self._items, self._taken_down())
        self._open = ()


def _renamed(item: N, name: str, other: str) -> N:
    if item.name != name:
        return item
    return msgspec.structs.replace(item, name=other)


def _then(items: Sequence[Item], more: Sequence[Item]) -> list[Item]:
    """Return items and those that follow; parts of one text that was passed are one item."""
    events = list(items)
    for item in more:
        last = events[-1] if events else None
        if isinstance(item, TextPassed) and isinstance(last, TextPassed) and item.name == last.name:
            events[-1] = TextPassed(last.name, last.splitting or item.splitting)
        else:
            events.append(item)
    return events


def _without_unlearned(items: Sequence[Item], vocabulary: Vocabulary) -> list[Item]:
    """Return items without the texts that earlier versions kept although they were not learned."""
    events: list[Item] = []
    for item in items:
        texts = texts_in(item)
        if texts and not texts[0].learned:
            passed = []
            for text in texts:
                if text.spelled is None:
                    splitting = _fits(vocabulary, text.texts)
                else:
                    splitting = text.spelled.fits
                passed.append(TextPassed(text.name, splitting))
            events = _then(events, passed)
        else:
            events.append(item)
    return events


def learned(record: History) -> list[TextRead]:
    """Return the texts of a record that the reader learned from."""
    texts = []
    for item in record.items:
        texts += [text for text in texts_in(item) if text.learned]
    return texts


def documents(record: History) -> list[LearnedDocument]:
    """Return the documents learned from, in the order of their first reading, after those the
    reader began with.
    """
    first = []
    if record.base is not None:
        for source in record.base.texts:
            path = source.get("path", "")
            first.append(LearnedDocument(path, None, source.get("bytes"), None, None))
    by_name: dict[str, LearnedDocument] = {}
    for text in learned(record):
        tokens = text.tokens
        size = text.bytes
        words = text.words
        before = by_name.get(text.name)
        if before is not None:
            tokens += before.tokens or 0
            size += before.bytes or 0
            words += before.words or 0
        by_name[text.name] = LearnedDocument(text.name, tokens, size, words, text.read)
    return first + list(by_name.values())


def laid_out(record: History) -> list[WrittenSpan]:
    """Return texts in the order in which their tokens were written to a memory."""
    spans = []
    if record.base is not None:
        for source in record.base.texts:
            pieces = tuple(source.get("pieces", ()))
            total = (sum(pieces),) if "pieces" in source else None
            spans.append(WrittenSpan((source.get("path"),), total, pieces=pieces))
    every = 1
    open_name = None  # of a document that may go on
    for item in record.items:
        if isinstance(item, ReaderOpened):
            every = item.update_every
        elif isinstance(item, TextStarted | TextPassed):
            open_name = None
        elif (texts := texts_in(item)) and texts[0].learned:
            lengths = tuple(text.tokens for text in texts)
            goes_on = isinstance(item, TextRead) and open_name == item.name
            before = spans[-1].lengths if goes_on else None
            if before:
                spans[-1] = spans[-1]._replace(lengths=(before[0] + lengths[0],))
                continue
            names = tuple(text.name or None for text in texts)
            spans.append(WrittenSpan(names, lengths, every))
            open_name = None
            if isinstance(item, TextRead):
                open_name = item.name
    return spans


def texts_of(record: History) -> list[SourceText]:
    """Return the documents of a record as JSON, for people who look into a folder."""
    texts: list[SourceText] = []
    if record.base is not None:
        texts += record.base.texts
    for document in documents(record)[len(texts) :]:
        fields = document._asdict()
        name = fields.pop("name")
        if name:
            fields = {"path": name, **fields}
        texts.append(cast(SourceText, fields))
    return texts


def texts_in(item: Item) -> list[TextRead]:
    if isinstance(item, TextsReadAsBatch):
        return item.texts
    if isinstance(item, TextRead):
        return [item]
    return []


def _fits(vocabulary: Vocabulary, texts: Sequence[str]) -> Chosen | None:
    with silence():
        for text in texts:
            splitting = vocabulary.fits(text.removeprefix("\ufeff"))
            if splitting is not None:
                return splitting
    return None


def write_record(path: Path, record: History) -> None:
    """Write a record to a file, one line per item."""
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as stream:
        for line in (record.base, *record.items):
            stream.write(encode(line) + b"\n")


def read_record_of(path: Path) -> History:
    """Read what :func:`write_record` wrote."""
    try:
        with path.open("rb") as stream:
            base = msgspec.json.decode(stream.readline(), type=FirstMemory | None)
            items = msgspec.json.Decoder(Item).decode_lines(stream.read())
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); read the text again") from error
    return History(base, tuple(items))
