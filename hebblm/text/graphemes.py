"""Characters as a reader sees them: extended grapheme clusters, by Unicode Standard Annex 29."""

from __future__ import annotations

import regex

_GRAPHEME = regex.compile(r"\X")


def graphemes(text: str) -> list[str]:
    """Return the extended grapheme clusters (Unicode Standard Annex 29) of a text, in order."""
    parts: list[str] = _GRAPHEME.findall(text)
    return parts
