"""Text as the ids of a model's dictionary, with further ids for new words in the order in which they are met."""

from __future__ import annotations

from collections.abc import Iterable

from hebblm.text.dictionary import Dictionary
from hebblm.text.fitting import SAMPLE, Chosen, Splitting, check_splitting, fitting
from hebblm.text.tokenizers import Tokenizer
from hebblm.text.vocabulary import Encoded

CASED = 0.01  # share of a dictionary's words from which on it tells capital letters apart


class GrowingVocabulary:
    """A dictionary that stays as it is, and the new words behind it.

    Args:
        dictionary: of the model; its ids are rows of the softmax layer.
        tokenizer: of the dictionary's text.
        lower: take words that the dictionary does not have in lower case.
        splitting: of texts; see :func:`hebblm.text.fitting.fitting`.
    """

    def __init__(
        self, dictionary: Dictionary, tokenizer: Tokenizer, *, lower: bool, splitting: Splitting = "auto"
    ) -> None:
        check_splitting(splitting)
        self.dictionary = dictionary
        self.own = self.tokenizer = tokenizer
        self.lower = lower
        self.splitting: Chosen | None = None
        if splitting != "auto":
            self.split(splitting)
        self.words: list[str] = []
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of ids, those of new words included."""
        return len(self.dictionary) + len(self.words)

    def __getitem__(self, index: int) -> str:
        """Return the word of an id."""
        known = len(self.dictionary)
        return self.dictionary[index] if index < known else self.words[index - known]

    @property
    def known(self) -> int:
        """Number of words of the dictionary."""
        return len(self.dictionary)

    @property
    def start(self) -> int:
        """Id of the end of line, which a text follows."""
        return self.dictionary.eos_index

    @property
    def unknown(self) -> int:
        """Id of ``<unk>``, which a new word reads as until it has a row."""
        return self.dictionary.unk_index

    @property
    def end(self) -> None:
        """Nothing: behind an end of line, words go on."""
        return

    @property
    def counts(self) -> tuple[int, ...]:
        """How often each word of the dictionary was seen in training."""
        return self.dictionary.counts

    def hash(self) -> str:
        """Return that of the dictionary."""
        return self.dictionary.hash()

    def fresh(self, splitting: Splitting = "auto") -> GrowingVocabulary:
        """Return the same without the new words, to split texts as is asked for.

        Raises:
            UserError: an unknown splitting.
        """
        return GrowingVocabulary(self.dictionary, self.own, lower=self.lower, splitting=splitting)

    def fit(self, text: str, name: str = "the text") -> None:
        """Choose how texts are split, on the first one that has words; it stays so.

        Args:
            text: from its beginning.
            name: of the text, for people.
        """
        if self.splitting is None and text.strip():
            found = fitting(text.split("\n", SAMPLE)[:SAMPLE], self.own, self._has, name=name)
            self.split("own" if found is self.own else "moses")

    def split(self, splitting: Chosen) -> None:
        """Split texts as was chosen before."""
        self.splitting = splitting
        self.tokenizer = self.own if splitting == "own" else fitting((), self.own, self._has, splitting, name="")

    def encode(self, text: str, *, include: bool) -> Encoded:
        """Return the words of a text; each line break, but not the text's end, is an ``<eos>``.

        Args:
            text: as it stands.
            include: give words met for the first time an id; otherwise they read ``<unk>``.
        """
        end = self.dictionary[self.dictionary.eos_index]
        tokens = [token for line in text.split("\n") for token in (*self.tokenizer.tokenize(line), end)][:-1]
        if self.lower:
            tokens = [token if token in self.dictionary else token.lower() for token in tokens]
        if include:
            self.include(tokens)
        unk = self.dictionary.unk_index
        ids = [
            self.dictionary.index(token) if token in self.dictionary else self._ids.get(token, unk) for token in tokens
        ]
        return Encoded(tuple(tokens), tuple(ids), tuple(range(len(ids))))

    def _has(self, word: str) -> bool:
        """Say whether the dictionary has a word, as :meth:`encode` takes it."""
        return word in self.dictionary or (self.lower and word.lower() in self.dictionary)

    def include(self, words: Iterable[str]) -> None:
        """Give those words an id that have none, in order."""
        for word in words:
            if word not in self.dictionary and word not in self._ids:
                self._ids[word] = len(self)
                self.words.append(word)

    def join(self, ids: Iterable[int]) -> str:
        """Return the text that ids stand for, as nearly as can be told."""
        lines: list[list[str]] = [[]]
        for index in ids:
            if index == self.dictionary.eos_index:
                lines.append([])
            else:
                lines[-1].append(self[index])
        return "\n".join(map(self.tokenizer.detokenize, lines))


def is_cased(dictionary: Dictionary) -> bool:
    """Say whether a dictionary tells capital letters apart; a few, as Penn Treebank's N for numbers, do not count."""
    cased = sum(word != word.lower() for word in dictionary.symbols)
    return cased > CASED * len(dictionary)
