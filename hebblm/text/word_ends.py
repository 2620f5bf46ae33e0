"""Where a word of running text ends: at spaces, and in scripts without spaces by a dictionary or by
graphemes.
"""

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
_UNSPACED = regex.compile(
    r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
)


class FirstWord(NamedTuple):
    """The first word of a text.

    Args:
        text: the word, without the spaces before it; a line break is ``\\n``.
        end: characters of the text up to the word's end.
        ended: whether the text goes on after it, so that nothing that follows can be a part of it.
    """

    text: str
    end: int
    ended: bool


def first_word(text: str) -> FirstWord | None:
    """Return the first word of a text, None if the text holds spaces alone.

    Spaces separate words. In scripts without spaces each grapheme (Unicode Standard Annex 29)
    counts as a word: where a word of several ends, only the text after it can say, see
    :func:`separated`.
    """
    match = _WORD.search(text)
    if match is None:
        return None
    if match[0] == "\n":
        return FirstWord("\n", match.end(), True)
    end = match.end()
    if _UNSPACED.search(match[0]) is not None:
        end = match.start() + len(_first_part(match[0]))
    return FirstWord(text[match.start() : end], end, end < len(text))


def _first_part(word: str) -> str:
    """Return the graphemes of a run without spaces up to the first one of a script without spaces,
    or that one.
    """
    parts = graphemes(word)
    spaced = next((at for at, part in enumerate(parts) if is_unspaced(part)), len(parts))
    return "".join(parts[: max(spaced, 1)])


def separated(text: str) -> list[str]:
    """Return the words of letters without spaces by ICU's dictionaries, or all in one where
    ``icu4py`` is missing.
    """
    breaker = dictionary()
    return [text] if breaker is None else breaker(text)


def is_unspaced(text: str) -> bool:
    """Return whether the first letter of a text is of a script that puts no spaces between
    words.
    """
    return _UNSPACED.match(text) is not None


@cache
def dictionary() -> Callable[[str], list[str]] | None:
    """Return a function that separates words by ICU's dictionaries; None where ``icu4py`` is not
    installed.
    """
    try:
        from icu4py.breakers import WordBreaker
    except ImportError:
        return None
    return lambda text: [str(part) for part in WordBreaker(text, "root")]


def without_closing(word: str) -> str:
    """Return a word without the punctuation that follows it; punctuation alone stays."""
    return word.rstrip(CLOSING) or word
