"""Where a word of running text ends: at blanks, and in scripts without blanks by a dictionary or by graphemes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import regex

from hebblm.text.graphemes import graphemes

CLOSING = ".,;:!?"
"""Punctuation that may follow a word and is not a part of it."""
_WORD = re.compile(r"\S+|\n")  # words as hebblm.text.words counts them
_UNSPACED = regex.compile(r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")


class FirstWord(NamedTuple):
    """The first word of a text.

    Args:
        text: the word, without the blanks before it; a line break is ``\\n``.
        end: characters of the text up to the word's end.
        ended: whether the text goes on after it, so that nothing that follows can be a part of it.
    """

    text: str
    end: int
    ended: bool


def first_word(text: str) -> FirstWord | None:
    """Return the first word of a text, None if the text holds blanks alone.

    Blanks separate words. In scripts without blanks a dictionary separates them where ``icu4py`` is installed;
    elsewhere each grapheme (Unicode Standard Annex 29) counts as a word.
    """
    found = _WORD.search(text)
    if found is None:
        return None
    if found[0] == "\n":
        return FirstWord("\n", found.end(), True)
    if _UNSPACED.search(found[0]) is None:
        return FirstWord(found[0], found.end(), found.end() < len(text))
    first = parts_of(found[0])[0]
    end = found.start() + len(first)
    return FirstWord(first, end, end < len(text))


def parts_of(word: str) -> list[str]:
    """Return the words in a run of letters without blanks."""
    if (separated := dictionary()) is not None:
        return separated(word)
    parts: list[str] = []
    joins = False  # whether the next grapheme may join the last part: both are of scripts with blanks
    for each in graphemes(word):
        spaced = not is_unspaced(each)
        if joins and spaced:
            parts[-1] += each
        else:
            parts.append(each)
        joins = spaced
    return parts


def is_unspaced(text: str) -> bool:
    """Return whether the first letter of a text is of a script that puts no blanks between words."""
    return _UNSPACED.match(text) is not None


@cache
def dictionary() -> Callable[[str], list[str]] | None:
    """Return a function that separates words by ICU's dictionaries; None where ``icu4py`` is not installed."""
    try:
        from icu4py.breakers import WordBreaker
    except ImportError:
        return None
    return lambda text: [str(part) for part in WordBreaker(text, "root")]


def without_closing(word: str) -> str:
    """Return a word without the punctuation that follows it; punctuation alone stays."""
    return word.rstrip(CLOSING) or word
