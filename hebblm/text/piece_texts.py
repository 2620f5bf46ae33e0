"""What each piece of a subword tokenizer adds to a text, as bytes: a piece may hold a part of a
character.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.text.graphemes import graphemes
from hebblm.text.subwords import Subwords
from hebblm.text.word_ends import CLOSING, is_unspaced

MOST_BYTES = 4  # of a character of UTF-8
UNDECODED = "\ufffd"  # stands for bytes that are no whole character
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a piece of SentencePiece that is a single byte


class Decoded(NamedTuple):
    """The characters of some bytes, and whether a character at their end is not complete."""

    text: str
    partial: bool


def decoded(data: bytes) -> Decoded | None:
    """Return the text of bytes of UTF-8 that may end within a character; None if they are no
    UTF-8.
    """
    try:
        return Decoded(data.decode(), False)
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        return Decoded(data[: error.start].decode(), True)


def whole_characters(data: bytes) -> str:
    """Return the text of bytes without a character at their end that is not complete."""
    decoded_text = decoded(data)
    if decoded_text is None:
        return data.decode(errors="replace")
    return decoded_text.text


class PieceTexts:
    """What each of V pieces adds to the text before it.

    Args:
        vocabulary: the pieces; ids beyond the tokenizer's have no text.
    """

    def __init__(self, vocabulary: Subwords) -> None:
        self._vocabulary = vocabulary
        self._anchor = vocabulary.encode("a").ids  # some tokenizers drop the space of a first piece
        self._before = len(vocabulary.join(self._anchor))
        self.special = {
            index for index in vocabulary.tokenizer.all_special_ids if index < len(vocabulary)
        }

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of some pieces in the middle of a text."""
        return self._vocabulary.join([*self._anchor, *ids])[self._before :]

    @cached_property
    def space_first(self) -> bool:
        """Whether the tokenizer puts a space before a text, which decoding takes away again."""
        return self.text(self._anchor).startswith(" ")

    @cached_property
    def data(self) -> list[bytes]:
        """Bytes of each piece (V,) in the middle of a text; joined they are the bytes of the
        pieces' text.
        """
        tokenizer = self._vocabulary.tokenizer
        rows = [[*self._anchor, index] for index in range(len(self._vocabulary))]
        texts = tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False)
        encoded = [text[self._before :].encode(errors="replace") for text in texts]
        # What decoding cannot show is a part of a character: the piece's name has its bytes.
        partial = [index for index, text in enumerate(texts) if UNDECODED in text[self._before :]]
        names = tokenizer.convert_ids_to_tokens(partial)
        for index, name in zip(partial, names, strict=True):
            if name is not None:
                encoded[index] = _bytes_of(name)
        return encoded

    def unfinished(self, ids: Sequence[int]) -> bytes:
        """Return the bytes at the end of some pieces that begin a character."""
        data = b"".join(self.data[index] for index in ids[-MOST_BYTES:])
        for count in range(1, MOST_BYTES):
            end = decoded(data[-count:])
            if end is not None and end.partial and not end.text:
                return data[-count:]
        return b""

    @cached_property
    def spaces(self) -> Tensor:
        """Which pieces (V,) begin with a space or a line break."""
        return self._flags(_first(data).isspace() for data in self.data)

    @cached_property
    def ends(self) -> Tensor:
        """Which pieces (V,) end the word before them: they begin with a space, or are special."""
        special = self._flags(index in self.special for index in range(len(self.data)))
        return self.spaces | special

    @cached_property
    def breaks(self) -> Tensor:
        """Which pieces (V,) begin with a line break, after spaces or none."""
        return self._flags(data.lstrip(b" \t\r").startswith(b"\n") for data in self.data)

    @cached_property
    def never(self) -> Tensor:
        """Which pieces (V,) are in no word: special ones, those without text, and ``<unk>``."""
        unknown = self._vocabulary.unknown
        never = []
        for index, data in enumerate(self.data):
            never.append(not data or index == unknown or index in self.special)
        return self._flags(never)

    @cached_property
    def continuing(self) -> Tensor:
        """Which pieces (V,) begin within a character."""
        return self._flags(data != b"" and 0x80 <= data[0] < 0xC0 for data in self.data)

    @cached_property
    def unspaced(self) -> Tensor:
        """Which pieces (V,) begin with a letter of a script without spaces."""
        return self._flags(is_unspaced(_first(data)) for data in self.data)

    @cached_property
    def incomplete(self) -> Tensor:
        """Which pieces (V,) begin with a character that is not complete in them."""
        return self._flags(
            data != b"" and data[0] >= 0xC0 and not _first(data) for data in self.data
        )

    @cached_property
    def graphemes(self) -> Tensor:
        """Which pieces (V,) begin a grapheme of their own after a letter, not a mark upon it."""
        begins = []
        for data in self.data:
            first = _first(data)
            begins.append(first != "" and len(graphemes(f"字{first}")) > 1)
        return self._flags(begins)

    def ends_after(self, unspaced: bool) -> Tensor:
        """Return which pieces (V,) end a word whose last letter is of a script without spaces, or
        with them.
        """
        if unspaced:
            return self.ends | self.graphemes
        return self.ends | self.unspaced

    @cached_property
    def depth(self) -> int:
        """Most pieces whose texts begin with one another, such as ``a``, ``an`` and ``and``."""
        deepest = 1
        above = list[bytes]()
        for data in sorted(filter(None, self.data)):
            while above and not data.startswith(above[-1]):
                above.pop()
            above.append(data)
            deepest = max(deepest, len(above))
        return deepest

    def towards(self, left: bytes, *, stripped: bool) -> tuple[Tensor, Tensor]:
        """Return which pieces (V,) begin with some bytes, and which are a true beginning of them.

        Args:
            left: the bytes.
            stripped: whether spaces before a piece's own letters do not count.
        """
        texts, order = self._stripped if stripped else self._sorted
        covers, begins = torch.zeros(2, len(order), dtype=torch.bool)
        first = bisect_left(texts, left)
        last = first
        while last < len(texts) and texts[last].startswith(left):
            last += 1
        covers[order[first:last]] = True
        for count in range(len(left)):
            part = left[:count]
            at = bisect_left(texts, part)
            while at < len(texts) and texts[at] == part:
                begins[order[at]] = True
                at += 1
        return covers, begins

    def parts(self, left: bytes, *, stripped: bool) -> list[int]:
        """Return the pieces that are a beginning of some bytes, or all of them and closing
        punctuation.

        Args:
            left: the bytes; empty for punctuation alone.
            stripped: whether spaces before a piece's own letters do not count; then pieces of
                spaces alone fit too.
        """
        by_text = self._by_stripped if stripped else self._by_data
        shortest = 0 if stripped else 1
        pieces: list[int] = []
        for count in range(shortest, len(left) + 1):
            pieces += by_text.get(left[:count], ())
        for closing in self._closing:
            pieces += by_text.get(left + closing, ())
        return pieces

    @cached_property
    def _by_data(self) -> dict[bytes, list[int]]:
        return _places(self.data)

    @cached_property
    def _by_stripped(self) -> dict[bytes, list[int]]:
        return _places([data.lstrip(b" \t\r\n") for data in self.data])

    @cached_property
    def _closing(self) -> list[bytes]:
        """Texts of pieces that are closing punctuation alone."""
        return [data for data in self._by_data if data and not data.strip(CLOSING.encode())]

    @cached_property
    def _sorted(self) -> tuple[list[bytes], Tensor]:
        return self._in_order(self.data)

    @cached_property
    def _stripped(self) -> tuple[list[bytes], Tensor]:
        """Bytes (V,) without the spaces before them, in order, and the pieces (V,) that have
        them.
        """
        return self._in_order([data.lstrip(b" \t") for data in self.data])

    @staticmethod
    def _in_order(texts: list[bytes]) -> tuple[list[bytes], Tensor]:
        order = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[index] for index in order], torch.tensor(order)

    @staticmethod
    def _flags(values: Iterable[bool]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.bool)


def _places(texts: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Return the places of each text."""
    places: dict[bytes, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, []).append(place)
    return places


def _first(data: bytes) -> str:
    """Return the first character of some bytes, "" if it is not complete in them."""
    if not data:
        return ""
    # The first byte says how many bytes of UTF-8 the character has.
    if data[0] < 0xC0:
        length = 1
    elif data[0] < 0xE0:
        length = 2
    elif data[0] < 0xF0:
        length = 3
    else:
        length = 4
    try:
        return data[:length].decode()
    except UnicodeDecodeError:
        return ""


def _bytes_of(name: str) -> bytes:
    """Return the bytes of a piece that holds a part of a character, from its name in the
    vocabulary.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    if (single := _BYTE.fullmatch(name)) is not None:
        return bytes([int(single[1], 16)])
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
    if all(letter in letters for letter in name):
        return bytes(letters[letter] for letter in name)
    return name.encode()
