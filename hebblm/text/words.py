"""Words of a text, independent of any tokenizer: separated by spaces, with each line break as a
word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hebblm.text.dictionary import EOS

Ids = npt.NDArray[np.int64]
_WORD = re.compile(r"\S+|\n")


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Words of a text, and those that each of its pieces is a part of.

    Args:
        texts: U words; a line break is ``\\n``.
        first: (T,) int64, ascending: first word that a piece is a part of.
        last: (T,) int64, ascending: last one.
        goes_on: whether the first word began before this part of the text.
    """

    texts: tuple[str, ...]  # U words; a line break is ``\n``
    first: Ids  # (T,) int64, ascending: first word that a piece is a part of
    last: Ids  # (T,) int64, ascending: last one
    goes_on: bool = False  # the first word began before this part of the text

    def __len__(self) -> int:
        return len(self.texts)

    def sums(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Return for each word (U,) the sum of its pieces' values (T,): a piece of several words
        gives equal parts.

        A word that the tokenizer dropped gets 0. The sum of all words is that of all pieces.
        """
        count = self.last - self.first + 1
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        index = np.repeat(self.first, count) + offset
        weights = np.repeat(values / count, count).astype(np.float64)
        return np.bincount(index, weights, minlength=len(self)).astype(np.float64)

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> Words:
        texts: list[str] = []
        firsts = []
        lasts = []
        for part in parts:
            firsts.append(part.first + len(texts))
            lasts.append(part.last + len(texts))
            texts += part.texts
        return cls(tuple(texts), np.concatenate(firsts), np.concatenate(lasts), parts[0].goes_on)

    def cut(self, place: int) -> tuple[Words, Words]:
        """Return the words of the pieces before a place, and of those from there on; one word may
        be in both.

        Words that the tokenizer dropped there go with the second part.
        """
        if place == len(self.first):
            return self, Words((), self.first[place:], self.last[place:])
        end = int(self.last[place - 1]) + 1 if place else 0
        begin = min(end, int(self.first[place]))
        before = Words(self.texts[:end], self.first[:place], self.last[:place], self.goes_on)
        after = Words(
            self.texts[begin:], self.first[place:] - begin, self.last[place:] - begin, begin < end
        )
        return before, after


def words_of(text: str, spans: Sequence[tuple[int, int]]) -> Words:
    """Return the words of a text, and the places of its T pieces: ``spans`` are each piece's first
    and end character.

    A piece is a part of each word that one of its characters belongs to. A piece of spaces, or of
    nothing, belongs to the next word, at the end to the last one. A text of spaces alone is one
    word.
    """
    words = list(_WORD.finditer(text))
    if not words:
        nothing = np.zeros(len(spans), dtype=np.int64)
        blank_words = (text,) if text else ()
        return Words(blank_words, nothing, nothing)
    begins = np.array([match.start() for match in words])
    ends = np.array([match.end() for match in words])
    start, stop = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    # the first word that ends after the piece begins
    first = np.searchsorted(ends, start, side="right")
    # the last one that begins before the piece ends
    last = np.searchsorted(begins, stop, side="left") - 1
    first = np.maximum.accumulate(np.minimum(first, len(words) - 1))
    last = np.maximum.accumulate(np.maximum(first, last))
    return Words(tuple(match[0] for match in words), first, last)


def lost_bytes(text: str, decoded: str) -> int:
    """Return the least number of a text's bytes that do not come back from its ids.

    It counts characters that the decoded text has fewer of, or those it has in their place or in
    addition, whichever are more. A space at its beginning, which some tokenizers put there, does
    not count.
    """
    if decoded in (text, f" {text}"):
        return 0
    original = Counter(text)
    back = Counter(decoded)
    return max(_size(original - back), _size(back - original))


def spelled_bytes(word: str) -> int:
    """Return the bytes that spell a word without an id: its own, and one for its end."""
    return len(word.strip().encode()) + 1


def counted_as(word: str, counts: Container[str]) -> str:
    """Return a word in the form in which ``counts`` has it: itself, or without the punctuation at
    its ends.
    """
    if word == "\n":
        return EOS
    core = word
    while core not in counts and len(core) > 1:
        if _is_punctuation(core[-1]) and core[-1] in counts:
            core = core[:-1]
        elif _is_punctuation(core[0]) and core[0] in counts:
            core = core[1:]
        else:
            break
    return core


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")


def _size(characters: Counter[str]) -> int:
    return sum(
        count * len(character.encode(errors="surrogatepass"))
        for character, count in characters.items()
    )
