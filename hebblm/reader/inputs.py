"""Texts for a reader: from strings and ids to tokens of its vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unicodedata import category

import msgspec
import numpy as np
from torch import Tensor

from hebblm.errors import UserError
from hebblm.runtime.progress import passing_bar
from hebblm.text.fitting import Chosen
from hebblm.text.vocabulary import Encoded, Vocabulary

Text = str | Sequence[int] | Tensor
"""A string, whose line breaks become ``<eos>``, or the ids of known words, (T,)."""
Texts = Sequence[Text] | Mapping[str, Text]
"""Documents that are read side by side; a mapping gives their names."""
Progress = Callable[[int, int], None] | None
"""A function of (tokens done, all tokens), called after each interval, or None."""
UNFIT = ("Cc", "Cs", "Zl", "Zp")
"""Categories of the characters that no name has; spaces and joiners of all kinds may stand in the
name of a file.
"""


class Spelled(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text with known tokens only: it was given as ids, or was read in part."""

    tokens: tuple[int | str, ...]  # (T,) as :meth:`Vocabulary.lasting` gives them
    bytes: int
    split: Chosen | None = None  # how the text was split; None for ids
    # how it is split if it is the first text; None for ids, or without words
    fits: Chosen | None = None

    def encoded(self, vocabulary: Vocabulary, *, include: bool) -> Encoded:
        if vocabulary.splitting is None and self.fits is not None:
            vocabulary.split(self.fits)
        if self.split not in (None, vocabulary.splitting):
            raise UserError(
                f"one part of a text was split as {self.split}, but the rest would be split as "
                f"{vocabulary.splitting}; read the texts again into another folder"
            )
        if include:
            vocabulary.include(token for token in self.tokens if isinstance(token, str))
        return vocabulary.of_ids(vocabulary.ids_of(self.tokens))


def encoded_text(
    vocabulary: Vocabulary,
    text: Text | Spelled,
    *,
    include: bool,
    begins: bool = True,
    most: int | None = None,
) -> tuple[Encoded, int]:
    """Return tokens and ids of a text, and its bytes.

    Args:
        vocabulary: vocabulary of the model.
        text: a string or ids.
        include: whether new words get an id.
        begins: whether the text begins here; a byte order mark at its start is then left out, as in
            a file.
        most: the most tokens of a string. If a line of words is read in part, its bytes count by
            the share of its tokens.
    """
    if isinstance(text, Spelled):
        encoded = text.encoded(vocabulary, include=include)
        return encoded, len(
            vocabulary.join(encoded.ids).encode()
        ) if text.split is None else text.bytes
    if isinstance(text, str):
        text = text.removeprefix("\ufeff") if begins else text
        size = bytes_of(text)
        vocabulary.fit(text)
        if most is None:
            return vocabulary.encode(text, include=include), size
        first, rest = vocabulary.encode(text, include=False).cut(most)
        if rest.ids and not vocabulary.grows:
            part = "".join(first.tokens)
            return replace(first, lost=vocabulary.encode(part, include=False).lost), len(
                part.encode()
            )
        if include:
            vocabulary.include(first.tokens)
            first, _ = vocabulary.encode(text, include=False).cut(most)
        if not rest.ids:
            return first, size
        size, lost = _of_first(vocabulary, text, most)
        return replace(first, lost=lost), size
    ids = known_ids(
        vocabulary, text, "text; give a string, ids in one row, or a list of such documents"
    )
    return vocabulary.of_ids(ids), len(vocabulary.join(ids).encode())


def encoded_documents(
    vocabulary: Vocabulary, texts: Sequence[Text | Spelled], every: int, *, include: bool
) -> tuple[list[Encoded], list[int]]:
    """Return tokens and ids of texts that are read side by side, ``every`` tokens at a time, and
    their bytes.
    """
    documents = [encoded_text(vocabulary, text, include=False) for text in texts]
    if include:
        # Words get their numbers, and so their rows, in the order of reading, not in the order of
        # the texts.
        for start in range(0, max(len(text.ids) for text, _ in documents), every):
            for text, _ in documents:
                vocabulary.include(text.tokens[start : start + every])
        documents = [encoded_text(vocabulary, text, include=True) for text in texts]
    return [text for text, _ in documents], [size for _, size in documents]


class Intervals:
    """Parts of a text that comes in pieces: whole intervals of ``every`` tokens, and at the end
    what is left.

    ``include`` says whether new words get an id, with the part that they stand in; ``most`` limits
    the tokens.
    """

    def __init__(self, every: int, *, include: bool, most: int | None) -> None:
        self._every, self._include, self._most = every, include, most
        self._waiting, self._size = Encoded((), ()), 0
        self.texts: list[str] = []  # the pieces so far

    @property
    def full(self) -> bool:
        """Whether all tokens were taken."""
        return self._most == 0

    def after(self, piece: str, vocabulary: Vocabulary) -> tuple[Encoded, int] | None:
        """Return the whole intervals that a further piece completes, and their bytes; None if it
        completes none.
        """
        encoded, more = encoded_text(
            vocabulary, piece, include=False, begins=not self.texts, most=self._most
        )
        self.texts.append(piece)
        waiting, self._size = self._waiting.then(encoded), self._size + more
        now, self._waiting = waiting.cut(len(waiting.ids) // self._every * self._every)
        if self._most is not None:
            self._most -= len(encoded.ids)
        return self._taken(now, vocabulary) if now.ids else None

    def rest(self, vocabulary: Vocabulary) -> tuple[Encoded, int] | None:
        """Return the last part, shorter than an interval, and its bytes; None if nothing is
        left.
        """
        return self._taken(self._waiting, vocabulary) if self._waiting.ids or self._size else None

    def _taken(self, part: Encoded, vocabulary: Vocabulary) -> tuple[Encoded, int]:
        size, self._size = self._size, 0
        if vocabulary.grows:
            if self._include:
                vocabulary.include(part.tokens)
                part = replace(part, unknown=())
            part = replace(part, ids=vocabulary.ids_of(part.tokens))
        return part, size


def pieces_of(text: Iterable[str]) -> Iterable[str]:
    """Return the pieces of a text; refuse a text in one piece."""
    if isinstance(text, str):
        raise UserError(f"{text!r:.60} is a text in one piece; give [text], or read it")
    if not isinstance(text, Iterable):
        raise UserError(f"{text!r:.60} is not a sequence of strings")
    return text


def _of_first(vocabulary: Vocabulary, text: str, tokens: int) -> tuple[int, int]:
    """Return the bytes of the first tokens of a text, and those of them that are lost."""
    size = lost = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        encoded, whole = vocabulary.encode(line, include=False), len(line.encode())
        if len(encoded.ids) > tokens:
            share = tokens / len(encoded.ids)
            return size + round(whole * share), lost + int(encoded.lost * share)
        size, lost, tokens = size + whole, lost + encoded.lost, tokens - len(encoded.ids)
    return size, lost


def bytes_of(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise UserError(
            f"character {error.start} of the text, {half!r}, is half a surrogate pair; decode the "
            "text again"
        ) from error


def check_text(text: object) -> None:
    """Refuse anything but a string of whole characters."""
    if not isinstance(text, str):
        raise UserError(f"{text!r:.60} is not a text; give a string")
    bytes_of(text)


def name_of(name: object) -> str:
    """Return the name of a document, "" for text without a name; refuse anything but a line of
    text.
    """
    if name is None:
        return ""
    if not isinstance(name, str):
        raise UserError(f"name = {name!r:.60} is not the name of a document; give a line of text")
    if any(category(character) in UNFIT for character in name):
        raise UserError(
            f"name = {name!r:.60} is not the name of a document, for it has a line break, a "
            "control character or half "
            "a surrogate pair; leave these out"
        )
    return name


def named(texts: Texts, name: str | None) -> tuple[list[str], list[Text]]:
    """Return the names of documents, "" for those without a name, and the documents."""
    if name is not None:
        raise UserError(
            f"name = {name!r:.60} names one document, not several; read {{name: text, ...}}"
        )
    if not isinstance(texts, Mapping):
        return [""] * len(texts), list(texts)
    if not all(texts):
        raise UserError(
            "one of several documents has no name; name all, or read [text, ...] without names"
        )
    return [*map(name_of, texts)], [*texts.values()]


def are_documents(text: Text | Sequence[Text]) -> bool:
    """Return whether a text is a list of documents, which may be empty, not a string or the ids of
    one text.
    """
    if (
        isinstance(text, str | Tensor | Mapping)
        or hasattr(text, "columns")
        or getattr(text, "ndim", 1) == 0
    ):
        return False
    if not hasattr(text, "__getitem__"):
        return False
    for first in text:  # a table's column may have any index
        return isinstance(first, Sequence) or getattr(first, "ndim", 0) > 0
    return isinstance(text, list | tuple)


def known_ids(vocabulary: Vocabulary, text: Sequence[int] | Tensor, wanted: str) -> list[int]:
    """Return the ids (T,) of a text; an error calls anything else "not a ``wanted``"."""
    try:
        rows = np.asarray(text.cpu() if isinstance(text, Tensor) else text)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ):  # rows of several lengths, or a tensor with gradients
        rows = np.empty(())
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise UserError(f"{text!r:.60} is not a {wanted}")
    ids: list[int] = rows.tolist()
    for index in ids:
        if not 0 <= index < len(vocabulary):
            raise UserError(
                f"id {index} is outside the vocabulary, which has 0 to {len(vocabulary) - 1}"
            )
    return ids


def reported(progress: Progress) -> Callable[[int, int], None]:
    """Return the function to call after each interval; refuse values that are not callable."""
    if progress is None:
        return lambda done, total: None
    if not callable(progress):
        raise UserError(
            f"progress = {progress!r:.60} cannot be called; give a function of (done, total), or "
            "leave it out"
        )
    return progress


@contextmanager
def followed(progress: Progress) -> Iterator[Callable[[int, int], None]]:
    """Yield the function to call after each interval; if the caller gave none, it moves a bar on a
    terminal.
    """
    if progress is None:
        with passing_bar("read", "tokens") as moved:
            yield moved
    else:
        yield reported(progress)
