"""The words of a text as they stand there, each with the spaces before it, so that a page can show
the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hebblm.evaluation.scenario import Scenario
from hebblm.text.dictionary import EOS
from hebblm.text.subwords import Subwords

NEAR = 1_000  # characters in which a word is looked for after the one before it


def written_words(scenario: Scenario) -> list[str] | None:
    """Return the words (U,) of a scenario's stream with their spaces; None if they cannot be joined
    to a text.
    """
    stream = scenario.stream.reported
    if scenario.stream.pieces is not None and isinstance(scenario.dictionary, Subwords):
        return spaced(
            scenario.dictionary.join(scenario.stream.ids.tolist()), scenario.stream.pieces.texts
        )
    if scenario.splits is None:
        return None
    words = [stream.symbols[index] for index in stream.ids.tolist()]
    lines = "\n".join(scenario.splits.detokenize(line) for line in _lines(words))
    return spaced(lines, ["\n" if word == EOS else word for word in words])


def spaced(text: str, words: Sequence[str]) -> list[str]:
    """Return words with the spaces before them in a text; with a single one where the text has
    another spelling.
    """
    spaced_words = []
    at = 0
    for word in words:
        begin = text.find(word, at, at + NEAR + len(word))
        gap = " " if begin < 0 else text[at:begin]
        spaced_words.append((" " if gap.strip(" \t\r") else gap) + word)
        if begin >= 0:
            at = begin + len(word)
    return spaced_words


def _lines(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of each line; a line may be empty."""
    numbers = []
    number = 0
    for word in words:
        numbers.append(number)
        number += word == EOS
    for _, line in groupby(zip(numbers, words, strict=True), key=lambda numbered: numbered[0]):
        yield [word for _, word in line if word != EOS]
