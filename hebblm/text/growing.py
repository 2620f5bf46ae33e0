"""Text as the ids of a model's dictionary, with further ids for new words in the order in which they are met."""

from __future__ import annotations

from collections.abc import Iterable

from hebblm.text.dictionary import Dictionary
from hebblm.text.tokenizers import Tokenizer

CASED = 0.01  # share of a dictionary's words from which on it tells capital letters apart


class GrowingVocabulary:
    """A dictionary that stays as it is, and the new words behind it.

    Args:
        dictionary: of the model; its ids are rows of the softmax layer.
        tokenizer: splits lines.
        lower: take words that the dictionary does not have in lower case.
        words: new words met before, in order.
    """

    def __init__(
        self, dictionary: Dictionary, tokenizer: Tokenizer, *, lower: bool, words: Iterable[str] = ()
    ) -> None:
        self.dictionary = dictionary
        self.tokenizer = tokenizer
        self.lower = lower
        self.words: list[str] = []
        self._ids: dict[str, int] = {}
        for word in words:
            self._include(word)

    def __len__(self) -> int:
        """Return the number of ids, those of new words included."""
        return len(self.dictionary) + len(self.words)

    def __getitem__(self, index: int) -> str:
        """Return the word of an id."""
        known = len(self.dictionary)
        return self.dictionary[index] if index < known else self.words[index - known]

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text; each line break, but not the text's end, is an ``<eos>``."""
        end = self.dictionary[self.dictionary.eos_index]
        tokens = [token for line in text.split("\n") for token in (*self.tokenizer.tokenize(line), end)][:-1]
        if not self.lower:
            return tokens
        return [token if token in self.dictionary else token.lower() for token in tokens]

    def ids(self, tokens: Iterable[str], *, include: bool) -> list[int]:
        """Return the ids of tokens.

        Args:
            tokens: as :meth:`split` gives them.
            include: give words met for the first time an id; otherwise they read ``<unk>``.
        """
        return [self._id(token, include=include) for token in tokens]

    def join(self, ids: Iterable[int]) -> str:
        """Return the text that ids stand for, as nearly as can be told."""
        lines: list[list[str]] = [[]]
        for index in ids:
            if index == self.dictionary.eos_index:
                lines.append([])
            else:
                lines[-1].append(self[index])
        return "\n".join(map(self.tokenizer.detokenize, lines))

    def _id(self, token: str, *, include: bool) -> int:
        if token in self.dictionary:
            return self.dictionary.index(token)
        if token not in self._ids and include:
            self._include(token)
        return self._ids.get(token, self.dictionary.unk_index)

    def _include(self, word: str) -> None:
        self._ids[word] = len(self)
        self.words.append(word)


def is_cased(dictionary: Dictionary) -> bool:
    """Say whether a dictionary tells capital letters apart; a few, as Penn Treebank's N for numbers, do not count."""
    cased = sum(word != word.lower() for word in dictionary.symbols)
    return cased > CASED * len(dictionary)
