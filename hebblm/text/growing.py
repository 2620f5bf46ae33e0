"""Text as the ids of a model's dictionary, with further ids for new words in the order in which they are met."""

from __future__ import annotations

from collections.abc import Iterable

from hebblm.text.dictionary import UNK, Dictionary
from hebblm.text.fitting import SAMPLE, Chosen, Splitting, check_splitting, fitting
from hebblm.text.tokenizers import Tokenizer
from hebblm.text.vocabulary import Encoded, Vocabulary

CASED = 0.01  # share of a dictionary's words from which on it tells capital letters apart


class GrowingVocabulary(Vocabulary):
    """A dictionary that stays as it is, and the new words behind it.

    ``lower`` takes words that the dictionary does not have in lower case.
    """

    def __init__(
        self, dictionary: Dictionary, tokenizer: Tokenizer, *, lower: bool, splitting: Splitting = "auto"
    ) -> None:
        check_splitting(splitting)
        self.dictionary = dictionary
        self.known, self.counts = len(dictionary), dictionary.counts
        self.start = dictionary.eos_index  # a text follows an end of line
        self.unknown = dictionary.unk_index
        self.end = None  # behind an end of line, words go on
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

    def fit(self, text: str, name: str = "the text") -> None:
        if self.splitting is None and text.strip():
            found = fitting(text.split("\n", SAMPLE)[:SAMPLE], self.own, self._has, name=name)
            self.split("own" if found is self.own else "moses")

    def split(self, splitting: Chosen) -> None:
        self.splitting = splitting
        self.tokenizer = self.own if splitting == "own" else fitting((), self.own, self._has, splitting, name="")

    def encode(self, text: str, *, include: bool) -> Encoded:
        """Words of a text; each line break, but not the text's end, is an ``<eos>``."""
        end = self.dictionary[self.start]
        tokens = [token for line in text.split("\n") for token in (*self.tokenizer.tokenize(line), end)][:-1]
        if self.lower:
            tokens = [token if token in self.dictionary else token.lower() for token in tokens]
        if include:
            self.include(tokens)
        ids = tuple(self._ids.get(token, self.dictionary.index(token)) for token in tokens)
        pairs = enumerate(zip(tokens, ids, strict=True))
        unknown = tuple(at for at, (token, index) in pairs if index == self.unknown and token != UNK)
        return Encoded(tuple(tokens), ids, unknown)

    def _has(self, word: str) -> bool:
        """Whether the dictionary has a word, as :meth:`encode` takes it."""
        return word in self.dictionary or (self.lower and word.lower() in self.dictionary)

    def include(self, words: Iterable[str]) -> None:
        for word in words:
            if word not in self.dictionary and word not in self._ids:
                self._ids[word] = len(self)
                self.words.append(word)

    def join(self, ids: Iterable[int]) -> str:
        lines: list[list[str]] = [[]]
        for index in ids:
            if index == self.start:
                lines.append([])
            else:
                lines[-1].append(self[index])
        return "\n".join(map(self.tokenizer.detokenize, lines))


def is_cased(dictionary: Dictionary) -> bool:
    """Whether a dictionary tells capital letters apart; a few, as Penn Treebank's N for numbers, do not count."""
    cased = sum(word != word.lower() for word in dictionary.symbols)
    return cased > CASED * len(dictionary)
