"""Words struck out of texts: where a word begins and ends, and which forms of it are the same
word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from unicodedata import normalize

import regex

_GRAPHEME = regex.compile(r"\X")
_BORDER = regex.compile(r"(?V1w)\b")  # of words, by Unicode Standard Annex 29
_MARKS = "'\u2018\u2019.,:;\uff07\uff0e\uff0c\uff1a\uff1b"
"""Marks that the annex takes for parts of a word between letters or digits; a name is a word before
``'s`` too.
"""
_UNMARKED = str.maketrans(dict.fromkeys(_MARKS, "!"))
_REST = regex.compile(rf"[{_MARKS}]\w")  # what may follow a word directly, such as 's


def struck(texts: Sequence[str], word: str) -> list[str]:
    """Return the left of a text without a word, and without a space before it unless more
    follows, such as ``'s``.

    It begins and ends at borders of graphemes and of words (Unicode Standard Annex 29), and at
    apostrophes, full stops, commas, colons and semicolons. Capitals and the normal forms of Unicode
    do not matter.
    """
    whole = "".join(texts)
    spans = list(_found(whole, _folded(word)))
    if not spans:
        return list(texts)
    ends = [end for _, end in spans]
    left = []
    for start, stop in pairwise(accumulate(map(len, texts), initial=0)):
        kept = []
        at = start
        for begin, end in spans[bisect_left(ends, start) :]:
            if begin >= stop:
                break
            kept.append(whole[at : max(at, begin)])
            at = max(at, end)
        left.append("".join([*kept, whole[at:stop]]))
    return left


def _found(text: str, folded: str) -> Iterator[tuple[int, int]]:
    """Yield where a word, with the space before it, begins and ends in a text, from left to
    right.
    """
    if folded not in _folded(text):
        return
    graphemes = {match.start() for match in _GRAPHEME.finditer(text)} | {len(text)}
    borders = sorted(
        {match.start() for match in _BORDER.finditer(text.translate(_UNMARKED))} & graphemes
    )
    parts = [_folded(text[begin:end]) for begin, end in pairwise(borders)]
    at = 0
    while at < len(parts):
        stop = at + 1
        part = parts[at]
        while stop < len(parts) and len(part) < len(folded) and folded.startswith(part):
            part += parts[stop]
            stop += 1
        if part == folded:
            begin = borders[at]
            end = borders[stop]
            space = text[begin - 1 : begin] in (" ", "\t") and not _REST.match(text, end)
            yield begin - space, end
            at = stop
        else:
            at += 1


def _folded(text: str) -> str:
    """Return a text that is equal for canonically equivalent texts, whatever their capitals
    (Unicode 3.13, D145).
    """
    return normalize("NFD", normalize("NFD", text).casefold())
