"""Texts for a reader: strings and ids, to tokens of its vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from torch import Tensor

from hebblm.errors import UserError
from hebblm.text.fitting import Chosen
from hebblm.text.vocabulary import Encoded, Vocabulary

Text = str | Sequence[int] | Tensor
"""A string, each line break of which is an ``<eos>``, or the ids of known words, (T,)."""
Texts = Sequence[Text] | Mapping[str, Text]
"""Documents that are read side by side, of which a mapping says the names."""
Progress = Callable[[int, int], None] | None
"""What is called with the tokens done and all of them after each interval, or nothing."""


class Spelled(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text of which the tokens are known alone: it was given as ids, or was read in part."""

    tokens: tuple[int | str, ...]  # (T,) as :meth:`Vocabulary.lasting` gives them
    bytes: int
    split: Chosen | None = None  # how the text was split; None of ids
    fits: Chosen | None = None  # how it would be, were it the first one; None of ids, or without words

    def encoded(self, vocabulary: Vocabulary, *, include: bool) -> Encoded:
        if vocabulary.splitting is None and self.fits is not None:
            vocabulary.split(self.fits)
        if self.split not in (None, vocabulary.splitting):
            raise UserError(
                f"a text of which a part was read is split as {self.split}, and what is left to be read as "
                f"{vocabulary.splitting}; read the texts anew into another folder"
            )
        if include:
            vocabulary.include(token for token in self.tokens if isinstance(token, str))
        return vocabulary.of_ids(vocabulary.ids_of(self.tokens))


def encoded_text(
    vocabulary: Vocabulary, text: Text | Spelled, *, include: bool, begins: bool = True, most: int | None = None
) -> tuple[Encoded, int]:
    """Tokens and ids of a text, and its bytes.

    Args:
        vocabulary: of the model.
        text: a string or ids.
        include: give words met for the first time an id.
        begins: whether the text begins here; a byte order mark at its start is then left out, as in a file.
        most: only so many tokens of a string. Of a line of words that is read in part, bytes count by the share of its
            tokens.
    """
    if isinstance(text, Spelled):
        encoded = text.encoded(vocabulary, include=include)
        return encoded, len(vocabulary.join(encoded.ids).encode()) if text.split is None else text.bytes
    if isinstance(text, str):
        text = text.removeprefix("\ufeff") if begins else text
        size = bytes_of(text)
        vocabulary.fit(text)
        if most is None:
            return vocabulary.encode(text, include=include), size
        first, rest = vocabulary.encode(text, include=False).cut(most)
        if rest.ids and not vocabulary.grows:
            part = "".join(first.tokens)
            return replace(first, lost=vocabulary.encode(part, include=False).lost), len(part.encode())
        if include:
            vocabulary.include(first.tokens)
            first, _ = vocabulary.encode(text, include=False).cut(most)
        return first, _bytes_of_first(vocabulary, text, most) if rest.ids else size
    ids = known_ids(vocabulary, text, "text; give a string, ids in one row, or a list of such documents")
    return vocabulary.of_ids(ids), len(vocabulary.join(ids).encode())


def encoded_documents(
    vocabulary: Vocabulary, texts: Sequence[Text | Spelled], every: int, *, include: bool
) -> tuple[list[Encoded], list[int]]:
    """Tokens and ids of texts that are read side by side, ``every`` tokens of each at a time, and their bytes."""
    documents = [encoded_text(vocabulary, text, include=False) for text in texts]
    if include:
        # A word has its number, and with it its row, from when it is met, not from when it is known to come.
        for start in range(0, max(len(text.ids) for text, _ in documents), every):
            for text, _ in documents:
                vocabulary.include(text.tokens[start : start + every])
        documents = [encoded_text(vocabulary, text, include=True) for text in texts]
    return [text for text, _ in documents], [size for _, size in documents]


def in_intervals(
    vocabulary: Vocabulary, pieces: Iterable[str], every: int, texts: list[str], *, include: bool, most: int | None
) -> Iterator[tuple[Encoded, int]]:
    """Parts of a text that comes in pieces, whole intervals of ``every`` tokens but for the last, and their bytes.

    Each piece is asked for once what came before it was taken, and goes into ``texts``; at ``most`` so many tokens do.
    """
    if isinstance(pieces, str):
        raise UserError(f"{pieces!r:.60} is a text in one piece; give [text], or read it")
    if not isinstance(pieces, Iterable):
        raise UserError(f"{pieces!r:.60} is not a sequence of strings")
    waiting, size = Encoded((), ()), 0
    for number, piece in enumerate(pieces):
        encoded, more = encoded_text(vocabulary, piece, include=include, begins=not number, most=most)
        texts.append(piece)
        waiting = waiting.then(encoded)
        now, waiting = waiting.cut(len(waiting.ids) // every * every)
        size += more
        if now.ids:
            yield now, size
            size = 0
        if most is not None:
            most -= len(encoded.ids)
            if not most:
                break
    if waiting.ids or size:
        yield waiting, size


def _bytes_of_first(vocabulary: Vocabulary, text: str, tokens: int) -> int:
    """Bytes of the first tokens of a text."""
    size = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        in_line, whole = len(vocabulary.encode(line, include=False).ids), len(line.encode())
        if in_line > tokens:
            return size + round(whole * tokens / in_line)
        size, tokens = size + whole, tokens - in_line
    return size


def bytes_of(text: str) -> int:
    """Length of a text in bytes of UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise UserError(
            f"character {error.start} of the text, {half!r}, is half a surrogate pair; decode the text again"
        ) from error


def name_of(name: object) -> str:
    """Name of a document, "" of text without one; what is none is refused."""
    if name is not None and (not isinstance(name, str) or not name.isprintable()):
        raise UserError(f"name = {name!r:.60} is not the name of a document; give a line of text")
    return "" if name is None else name


def named(texts: Texts, name: str | None) -> tuple[list[str], list[Text]]:
    """Names of documents, "" of those without one, and the documents."""
    if name is not None:
        raise UserError(f"name = {name!r:.60} is of one document, not of several; read {{name: text, ...}}")
    if not isinstance(texts, Mapping):
        return [""] * len(texts), list(texts)
    if not all(texts):
        raise UserError("a document of several has no name; read [text, ...] where none has one")
    return [*map(name_of, texts)], [*texts.values()]


def are_documents(text: Text | Sequence[Text]) -> bool:
    """Whether a text is a list of several, or of none, not a string or the ids of one."""
    if isinstance(text, str | Tensor | Mapping) or hasattr(text, "columns") or getattr(text, "ndim", 1) == 0:
        return False
    if not hasattr(text, "__getitem__"):
        return False
    for first in text:  # a column of a table has its first one anywhere
        return isinstance(first, Sequence) or getattr(first, "ndim", 0) > 0
    return isinstance(text, list | tuple)


def known_ids(vocabulary: Vocabulary, text: Sequence[int] | Tensor, wanted: str) -> list[int]:
    """Ids (T,) of a text; what is none is refused as no ``wanted``."""
    try:
        rows = np.asarray(text.cpu() if isinstance(text, Tensor) else text)
    except (TypeError, ValueError, RuntimeError):
        rows = np.empty(())
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise UserError(f"{text!r:.60} is not a {wanted}")
    ids: list[int] = rows.tolist()
    for index in ids:
        if not 0 <= index < len(vocabulary):
            raise UserError(f"id {index} is outside the vocabulary, which has 0 to {len(vocabulary) - 1}")
    return ids


def reported(progress: Progress) -> Callable[[int, int], None]:
    """What is called after each interval; refuse what cannot be."""
    if progress is None:
        return lambda done, total: None
    if not callable(progress):
        raise UserError(
            f"progress = {progress!r:.60} cannot be called; give a function of (done, total), or leave it out"
        )
    return progress
