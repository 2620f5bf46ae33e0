"""Vocabulary of a reader: text to ids and back, whatever the ids stand for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hebblm.text.dictionary import UNK
from hebblm.text.fitting import SAMPLE, Chosen, Splitting, warn_of_unknown


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as a model reads it.

    Args:
        tokens: T pieces of text.
        ids: T ids.
        words: T, which word of the text each token belongs to, counted from 0.
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    words: tuple[int, ...]

    def then(self, more: Encoded, behind: int) -> Encoded:
        """Return this text followed by another one, whose first word is word number ``behind``."""
        words = tuple(behind + word for word in more.words)
        return Encoded(self.tokens + more.tokens, self.ids + more.ids, self.words + words)

    def cut(self, place: int) -> tuple[Encoded, Encoded]:
        """Return the text before one of its tokens, and what begins with that."""
        before = Encoded(self.tokens[:place], self.ids[:place], self.words[:place])
        return before, Encoded(self.tokens[place:], self.ids[place:], self.words[place:])


class Vocabulary(ABC):
    """Text as ids: those of a model's rows, and behind them those of new words in the order in which they are met."""

    known: int
    """Number of ids that the model was trained with."""
    counts: Sequence[int]
    """How often each of these was seen in training."""
    words: list[str]
    """New words met so far, in order; they have ids behind the model's own."""
    start: int
    """Id that stands before the first token of a text."""
    end: int | None
    """Id behind which a generated text ends; None where it goes on."""
    unknown: int | None
    """Id that a new word reads as until it has a row; None where every text has ids of its own."""
    splitting: Chosen | None
    """How texts are split; None until the first one was read."""

    def __len__(self) -> int:
        """Return the number of ids, those of new words included."""
        return self.known + len(self.words)

    @abstractmethod
    def __getitem__(self, index: int) -> str:
        """Return what an id stands for."""

    @abstractmethod
    def hash(self) -> str:
        """Return what tells the known ids from those of another model."""

    @abstractmethod
    def encode(self, text: str, *, include: bool) -> Encoded:
        """Return a text as ids.

        Args:
            text: as it stands.
            include: give words met for the first time an id; otherwise they read as :attr:`unknown`.
        """

    @abstractmethod
    def join(self, ids: Iterable[int]) -> str:
        """Return the text that ids stand for, as nearly as can be told."""

    @abstractmethod
    def fresh(self, splitting: Splitting = "auto") -> Vocabulary:
        """Return the same without the new words, to split texts as is asked for.

        Raises:
            UserError: texts cannot be split so.
        """

    def include(self, words: Iterable[str]) -> None:  # noqa: B027 - there may be no new words
        """Give new words their ids, in order."""

    def fit(self, text: str, name: str = "the text") -> None:  # noqa: B027 - there may be one way alone
        """Choose how texts are split, on the first one that has words; it stays so.

        Args:
            text: from its beginning.
            name: of the text, for people.
        """

    def split(self, splitting: Chosen) -> None:  # noqa: B027
        """Split texts as was chosen before."""


def warn_of_new(vocabulary: Vocabulary, text: str, name: str) -> None:
    """Say so where much of the beginning of a text is new to a vocabulary.

    Args:
        vocabulary: that knows how texts are split.
        text: from its beginning, before its words are included.
        name: of the text.
    """
    found = vocabulary.encode("\n".join(text.split("\n", SAMPLE)[:SAMPLE]), include=False)
    unknown = [token for token, index in zip(found.tokens, found.ids, strict=True) if index == vocabulary.unknown]
    beyond = Counter(token for token in unknown if token != UNK)
    warn_of_unknown(name, beyond, len(found.ids), len(unknown) - beyond.total(), "--tokenizer")
