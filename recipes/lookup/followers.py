"""The yardstick: what most often followed the last words in what was read."""

from __future__ import annotations

from collections import Counter, defaultdict

from recipes.lookup.prompts import bare

AFTER_TWO, AFTER_ONE = 3, 6  # words that follow the last two, then the last one


class Followers:
    """Words that followed each word and each two words of a text."""

    def __init__(self, text: str) -> None:
        self._after_one: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._after_two: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        words = text.split()
        for first, second, third in zip(words, words[1:], words[2:], strict=False):
            self._after_one[second][third] += 1
            self._after_two[first, second][third] += 1

    def suggest(self, context: str) -> list[str]:
        """Return the words that followed the last two words of a context most often, then those
        after the last.
        """
        first, second = context.split()[-2:]
        ranked = [word for word, _ in self._after_two[first, second].most_common(AFTER_TWO)]
        ranked += [word for word, _ in self._after_one[second].most_common(AFTER_ONE)]
        return list(dict.fromkeys(map(bare, ranked)))
