"""Prompts of a text: the beginnings of lines that a reader has not read, each with the word that
comes next.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

LEAST_WORDS = 7  # of a paragraph; shorter ones are titles and the like
CUTS = range(3, 9)  # words of a beginning
# one that is asked for; signs of code and markup are not
WORD = re.compile(r"[^\W_](?:[\w-]*[^\W_])?[.,;:]?")
MARKS = ".,;:"  # after a word they do not count
SEED = 0


class Prompt(NamedTuple):
    """A beginning of a line, and the word that is to come next."""

    context: str
    word: str


def bare(word: str) -> str:
    """Return a word without spaces around it and punctuation after it."""
    return word.strip().strip(MARKS)


def parts(text: str) -> tuple[str, str]:
    """Return the first three quarters of a text's paragraphs, which are learned, and the rest,
    which is asked for.

    A text without blank lines, such as a log, is cut between lines.
    """
    between = "\n\n" if re.search(r"\n[ \t]*\n", text.strip()) else "\n"
    pieces = re.split(r"\n\s*\n" if between == "\n\n" else r"\n", text)
    pieces = [piece for piece in pieces if len(piece.split()) >= LEAST_WORDS]
    at = len(pieces) * 3 // 4
    return between.join(pieces[:at]), between.join(pieces[at:])


def prompts(text: str, count: int | None = None) -> list[Prompt]:
    """Return the prompts of a text in random order, ``count`` of them or all: lines cut after 3 to
    8 words.

    A line's indentation and the spaces between its words stay as they are.
    """
    found = []
    for line in text.split("\n"):
        words = list(re.finditer(r"\S+", line))
        for at in CUTS:
            if at < len(words) - 1 and WORD.fullmatch(words[at][0]):
                found.append(Prompt(line[: words[at - 1].end()], words[at][0]))
    random.Random(SEED).shuffle(found)
    return found[:count]
