"""Whether README and docs stay short and plain: words in all, the length of sentences, odd words.

python -m recipes.plain

prints what is above its limit, and exits with status 1 if anything is.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 18_000  # in README and docs, tables and code included
MEDIAN_WORDS, LONGEST_WORDS = 18, 40  # of a sentence
ODD = {
    r"\bbehind\b": "after, or worse than",
    r"\bbeside\b": "next to, with, or compared with",
    r"(?<!there )\b(?:is|are) none\b": "no such thing exists",
    r"(?<!there )\b(?:is|are) no (?:part|result|achievement|text|model|word|name)\b": "is not a",
    r"\b(?:is|are) of no\b": "does not belong, or has no",
    r"\bset for nothing\b": "has no effect",
    r"\bof which\b": "whose, or a second sentence",
    r"\b(?:is|are) told\b": "prints, says, or shows",
}
"""Patterns of words that nobody says aloud, and what to write in their place."""
WRITTEN = re.compile(r"<!-- (\S+): written by .*?<!-- end of \1 -->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
APART = re.compile(r"^(?:#|\||:::|---|!\[|\s*(?:[-*]|\d+\.)\s)")  # begins a paragraph of its own
END = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9X`])")


def pages() -> list[Path]:
    """Return README and the pages of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items that a person wrote: no code, tables, headings or written blocks."""
    text = LINK.sub(r"\1", CODE.sub("X", FENCE.sub("\n", WRITTEN.sub("\n", text))))
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if (not line.strip() or APART.match(line)) and lines:
            yield " ".join(lines)
            lines = []
        if line.strip() and not re.match(r"#|\||:::|---|!\[", line):
            lines.append(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", line).strip())


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; a piece of code counts as one word."""
    return [
        sentence for paragraph in paragraphs(text) for sentence in END.split(paragraph) if len(sentence.split()) > 1
    ]


def odd_words(text: str) -> list[str]:
    """Return the odd words of a text, each with what to write in its place."""
    text = " ".join(CODE.sub("X", FENCE.sub("\n", WRITTEN.sub("\n", text))).split())
    return [f"{match[0]!r}: write {plain}" for odd, plain in ODD.items() for match in re.finditer(odd, text, re.I)]


def faults(texts: dict[str, str]) -> list[str]:
    """Return in one line each what is above its limit in some pages, by name."""
    words = sum(len(text.split()) for text in texts.values())
    found = [f"{words:,} words in all, at most {MOST_WORDS:,}"] if words > MOST_WORDS else []
    for name, text in texts.items():
        said = sentences(text)
        median = statistics.median(len(sentence.split()) for sentence in said) if said else 0
        if median > MEDIAN_WORDS:
            found.append(f"{name}: the median sentence has {median:g} words, at most {MEDIAN_WORDS}")
        long = [sentence for sentence in said if len(sentence.split()) > LONGEST_WORDS]
        found += [f"{name}: a sentence of {len(sentence.split())} words: {sentence}" for sentence in long]
        found += [f"{name}: {odd}" for odd in odd_words(text)]
    return found


def main() -> int:
    found = faults({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in pages()})
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
