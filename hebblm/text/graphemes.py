"""Characters as a reader sees them: extended grapheme clusters, by Unicode Standard Annex 29."""

from __future__ import annotations

import regex

_GRAPHEME = regex.compile(r"\X")


def graphemes(text: str) -> list[str]:
    """Return the extended grapheme clusters of a text (Unicode Standard Annex 29), in order; joined they are the text."""
    return _GRAPHEME.findall(text)
