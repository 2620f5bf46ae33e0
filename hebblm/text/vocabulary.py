"""Vocabulary of a reader: from text to ids and back, for words or pieces."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from hebblm.text.dictionary import UNK, Dictionary
from hebblm.text.fitting import SAMPLE, Chosen, Splitting, check_splitting, fitting, warn_of_unknown
from hebblm.text.tokenizers import Tokenizer
from hebblm.text.words import Words


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as a model reads it."""

    tokens: tuple[str, ...]  # T pieces of text
    ids: tuple[int, ...]  # T ids
    unknown: tuple[int, ...] = ()  # places of the tokens that have no id of their own, ascending
    # words of the text and where its tokens lie in them; None where each token is a word
    words: Words | None = None
    lost: int = 0  # bytes of the text that its ids do not give back, at least

    def then(self, more: Encoded) -> Encoded:
        if not self.ids and self.words is None:
            return more
        shifted = tuple(len(self.ids) + place for place in more.unknown)
        if self.words is None or more.words is None:
            words = None
        else:
            words = Words.joined([self.words, more.words])
        tokens = self.tokens + more.tokens
        ids = self.ids + more.ids
        return Encoded(tokens, ids, self.unknown + shifted, words, self.lost + more.lost)

    def cut(self, place: int) -> tuple[Encoded, Encoded]:
        """Split a text before one of its tokens; lost bytes go with the first part."""
        place = min(place, len(self.ids))
        words = (None, None) if self.words is None else self.words.cut(place)
        earlier = tuple(at for at in self.unknown if at < place)
        later = tuple(at - place for at in self.unknown[len(earlier) :])
        before = Encoded(
            self.tokens[:place], self.ids[:place], earlier, words[0], self.lost if place else 0
        )
        after = Encoded(
            self.tokens[place:], self.ids[place:], later, words[1], 0 if place else self.lost
        )
        return before, after


class Vocabulary(ABC):
    """Text as ids: those of a model's rows, then those of new words in the order of their first
    occurrence.
    """

    known: int
    """Number of ids that the model was trained with."""
    counts: Sequence[int]
    """Count of each of these in training."""
    words: list[str]
    """New words so far, in order; their ids follow the model's own."""
    start: int
    """Id before the first token of a text."""
    end: int | None
    """Id that ends a generated text; None if no id ends it."""
    unknown: int | None
    """Id of tokens without an id, such as a new word before it has a row; None if every text has
    ids.
    """
    grows: bool
    """Whether new words get ids after the model's own."""
    lower: bool = False
    """Whether words that the model does not know are written in small letters."""
    splitting: Chosen | None
    """Splitting of texts; None before the first one."""

    def __len__(self) -> int:
        return self.known + len(self.words)

    @abstractmethod
    def __getitem__(self, index: int) -> str: ...

    @abstractmethod
    def hash(self) -> str:
        """Return a hash that tells the known ids from those of another model."""

    @abstractmethod
    def encode(self, text: str, *, include: bool) -> Encoded:
        """Return a text as ids; ``include`` gives new words an id, without it they become
        :attr:`unknown`.
        """

    def of_ids(self, ids: Sequence[int]) -> Encoded:
        """Return the text of ids (T,) with exactly these ids; each id is a word unless pieces show
        the words.
        """
        return Encoded(tuple(self[index] for index in ids), tuple(ids))

    def lasting(self, ids: Sequence[int]) -> tuple[int | str, ...]:
        """Return tokens that stay valid if other new words come first: words if the vocabulary has
        words, else ids.
        """
        return tuple(self[index] for index in ids) if self.grows else tuple(ids)

    def ids_of(self, tokens: Sequence[int | str]) -> tuple[int, ...]:
        """Return the ids of tokens from :meth:`lasting`; a word that was not included is
        :attr:`unknown`.
        """
        return tuple(token for token in tokens if isinstance(token, int))

    @abstractmethod
    def join(self, ids: Iterable[int]) -> str:
        """Return the text of some ids, as nearly as possible."""

    @abstractmethod
    def fresh(self, splitting: Splitting = "auto") -> Vocabulary:
        """Return a copy without the new words, with the requested splitting of texts."""

    def snapshot(self) -> Self:
        """Return a vocabulary with the words of now; neither changes the other."""
        other = copy.copy(self)
        other.words = list(self.words)
        return other

    def include(self, words: Iterable[str]) -> None:  # noqa: B027 - there may be no new words
        """Give new words their ids, in order."""

    def exclude(self, rows: int) -> None:  # noqa: B027
        """Remove the ids of new words beyond so many rows: their reading was interrupted."""

    @abstractmethod
    def fits(self, text: str, name: str = "the text") -> Chosen | None:
        """Return the splitting of texts if this is the first one; None if it has no words."""

    def fit(self, text: str, name: str = "the text") -> None:
        """Choose the splitting of all texts from the first one that has words."""
        if self.splitting is None and (splitting := self.fits(text, name)) is not None:
            self.split(splitting)

    def split(self, splitting: Chosen) -> None:  # noqa: B027
        """Split texts as chosen before."""


def warn_of_new(vocabulary: Vocabulary, text: str, name: str) -> None:
    """Warn if much of the beginning of a text is new to a vocabulary, before its words are
    included.
    """
    encoded = vocabulary.encode("\n".join(text.split("\n", SAMPLE)[:SAMPLE]), include=False)
    beyond = Counter(encoded.tokens[place] for place in encoded.unknown)
    literal = sum(index == vocabulary.unknown for index in encoded.ids) - beyond.total()
    if vocabulary.grows:
        warn_of_unknown(name, beyond, len(encoded.ids), literal, "`tokenizer`")


CASED = 0.01  # share of a dictionary's words from which on it tells capital letters apart


class GrowingVocabulary(Vocabulary):
    """A fixed dictionary, followed by new words.

    ``lower`` lower-cases words that the dictionary does not have.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        tokenizer: Tokenizer,
        *,
        lower: bool,
        splitting: Splitting = "auto",
    ) -> None:
        check_splitting(splitting)
        self.dictionary = dictionary
        self.known = len(dictionary)
        self.counts = dictionary.counts
        self.start = dictionary.eos_index  # a text follows an end of line
        self.unknown = dictionary.unk_index
        self.end = None  # words go on after an end of line
        self.own = self.tokenizer = tokenizer
        self.lower = lower
        self.splitting = None
        if splitting != "auto":
            self.split(splitting)
        self.words = []
        self.grows = True
        self._ids: dict[str, int] = {}

    def __getitem__(self, index: int) -> str:
        return self.dictionary[index] if index < self.known else self.words[index - self.known]

    def hash(self) -> str:
        return self.dictionary.hash()

    def fresh(self, splitting: Splitting = "auto") -> GrowingVocabulary:
        return GrowingVocabulary(self.dictionary, self.own, lower=self.lower, splitting=splitting)

    def snapshot(self) -> Self:
        other = super().snapshot()
        other._ids = dict(self._ids)
        return other

    def fits(self, text: str, name: str = "the text") -> Chosen | None:
        if not text.strip():
            return None
        splitting = fitting(text.split("\n", SAMPLE)[:SAMPLE], self.own, self._has, name=name)
        return "own" if splitting is self.own else "moses"

    def split(self, splitting: Chosen) -> None:
        self.splitting = splitting
        if splitting == "own":
            self.tokenizer = self.own
        else:
            self.tokenizer = fitting((), self.own, self._has, splitting, name="")

    def encode(self, text: str, *, include: bool) -> Encoded:
        """Return the words of a text; each line break, but not the text's end, is an ``<eos>``."""
        end = self.dictionary[self.start]
        tokens = list[str]()
        lost = 0
        # A space at either end stands between this text and another one: it is not lost.
        inner = text.removeprefix(" ").removesuffix(" ")
        for line, shown in zip(text.split("\n"), inner.split("\n"), strict=True):
            words = self.tokenizer.tokenize(line)
            if self.lower:
                for at, word in enumerate(words):
                    if word not in self.dictionary:
                        words[at] = word.lower()
            lost += self.tokenizer.lost(shown, words)
            tokens += [*words, end]
        tokens.pop()
        if include:
            self.include(tokens)
        ids = self.ids_of(tokens)
        pairs = enumerate(zip(tokens, ids, strict=True))
        unknown = tuple(
            at for at, (token, index) in pairs if index == self.unknown and token != UNK
        )
        return Encoded(tuple(tokens), ids, unknown, lost=lost)

    def ids_of(self, tokens: Sequence[int | str]) -> tuple[int, ...]:
        return tuple(self._ids.get(word, self.dictionary.index(word)) for word in map(str, tokens))

    def _has(self, word: str) -> bool:
        """Return whether the dictionary has a word in the form that :meth:`encode` uses."""
        return word in self.dictionary or (self.lower and word.lower() in self.dictionary)

    def include(self, words: Iterable[str]) -> None:
        for word in words:
            if word not in self.dictionary and word not in self._ids:
                self._ids[word] = len(self)
                self.words.append(word)

    def exclude(self, rows: int) -> None:
        for word in self.words[max(0, rows - self.known) :]:
            del self._ids[word]
        del self.words[max(0, rows - self.known) :]

    def join(self, ids: Iterable[int]) -> str:
        lines: list[list[str]] = [[]]
        for index in ids:
            if index == self.start:
                lines.append([])
            else:
                lines[-1].append(self[index])
        return "\n".join(map(self.tokenizer.detokenize, lines))


def is_cased(dictionary: Dictionary) -> bool:
    """Return whether a dictionary has capital letters; a few, such as Penn Treebank's N for
    numbers, do not count.
    """
    cased = sum(word != word.lower() for word in dictionary.symbols)
    return cased > CASED * len(dictionary)
