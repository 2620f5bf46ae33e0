"""Words that are expected next, most probable first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.text.vocabulary import Vocabulary
from hebblm.text.word_ends import without_closing


class _Suggested(NamedTuple):
    """The three values that a suggestion unpacks as."""

    word: str
    probability: float
    unadapted: float


class Suggestion(_Suggested):
    """A word that may come next; it unpacks as word, probability and unadapted.

    Args:
        word: the word, without spaces and without punctuation that follows it.
        probability: its probability after adaptation; where letters are typed, among the words that
            begin with them.
        unadapted: its probability under the trained base, with rows of zeros for new words.
        insert_text: what to insert after the context and the typed letters, with the space before
            the word if it needs one. None for the word itself.
        ends: whether the word ends there; False for a run of letters in a script without spaces.
    """

    insert_text: str
    ends: bool

    def __new__(
        cls,
        word: str,
        probability: float,
        unadapted: float,
        insert_text: str | None = None,
        *,
        ends: bool = True,
    ) -> Suggestion:
        suggestion = super().__new__(cls, word, probability, unadapted)
        suggestion.insert_text = word if insert_text is None else insert_text
        suggestion.ends = ends
        return suggestion


class Suggestions(list[Suggestion]):
    """Words that may come next, most probable first.

    Args:
        found: the words.
        bound: probability of any word that is not listed, at most.
        exact: whether the words and their order are certain; False if a budget ended the search.
    """

    def __init__(
        self, suggestions: Iterable[Suggestion] = (), bound: float = 0.0, *, exact: bool = True
    ) -> None:
        super().__init__(suggestions)
        self.bound = bound
        self.exact = exact


class Expected(NamedTuple):
    """A word that may come next, and the tokens that it may begin with.

    Args:
        suggestion: the word.
        rest: by first token, the probability of the word's rest and end after it; 1 where a token
            is a word.
    """

    suggestion: Suggestion
    rest: Mapping[int, float]


class WordForms:
    """The tokens of a vocabulary of words: grouped by what they are without punctuation that
    follows, and in the order of their letters.

    Args:
        vocabulary: the vocabulary, which may grow.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers: dict[str, int] = {}
        self.words: list[str] = []  # (G,) the words
        # (V,) number of the word that each token is a form of
        self._groups = torch.empty(0, dtype=torch.int64)
        self._in_order: list[tuple[str, int]] = []  # (V,) tokens with their ids

    def groups(self, size: int) -> Tensor:
        """Return the number (V,) int64 of the word that each of the first V tokens is a form of."""
        self._extend(size)
        return self._groups[:size]

    def beginning_with(self, typed: str, size: int) -> list[int]:
        """Return which of the first V tokens begin with typed letters, as the vocabulary writes
        them.
        """
        self._extend(size)
        writings = {typed, typed.lower()} if self._vocabulary.lower else {typed}
        matching = set()
        for letters in writings:
            first = bisect_left(self._in_order, (letters,))
            for token, index in islice(self._in_order, first, None):
                if not token.startswith(letters):
                    break
                matching.add(index)
        return sorted(index for index in matching if index < size)

    def _extend(self, size: int) -> None:
        """Add those of the first V tokens that are not in yet."""
        known = len(self._groups)
        if size <= known:
            return
        added = []
        for index in range(known, size):
            token = self._vocabulary[index]
            word = without_closing(token)
            number = self._numbers.setdefault(word, len(self.words))
            if number == len(self.words):
                self.words.append(word)
            added.append(number)
            self._in_order.append((token, index))
        self._groups = torch.cat([self._groups, torch.tensor(added)])
        self._in_order.sort()


def most_probable(
    adapted: Tensor,
    unadapted: Tensor,
    vocabulary: Vocabulary,
    forms: WordForms,
    n: int,
    *,
    typed: str = "",
    inserted: Callable[[int], str] | None = None,
) -> list[Expected]:
    """Return the most probable next words of a model of words, most probable first.

    Forms that differ only in punctuation that follows add up. ``<unk>`` is not a word and is left
    out.

    Args:
        adapted: (V,) probabilities of the tokens after adaptation.
        unadapted: (V,) those of the trained base.
        vocabulary: the model's vocabulary.
        forms: groups its tokens.
        n: number of words.
        typed: letters that the words begin with; then probabilities are those among such words.
        inserted: returns the text that a token adds after the place; None for the token itself.
    """
    allowed = torch.ones(len(adapted), dtype=torch.bool)
    if vocabulary.unknown is not None:
        allowed[vocabulary.unknown] = False
    if typed:
        narrowed = torch.zeros_like(allowed)
        narrowed[forms.beginning_with(typed, len(adapted))] = True
        allowed &= narrowed
    mass, base = (torch.where(allowed, part.double().cpu(), 0.0) for part in (adapted, unadapted))
    total, base_total = (float(mass.sum()), float(base.sum())) if typed else (1.0, 1.0)
    groups = forms.groups(len(mass))
    sums, base_sums = (
        torch.zeros(len(forms.words), dtype=torch.float64).index_add_(0, groups, part)
        for part in (mass, base)
    )
    listed = torch.zeros(len(forms.words), dtype=torch.bool)
    listed[groups[allowed]] = True
    best = torch.where(listed, sums, -1.0).topk(min(n, int(listed.sum()))).indices.tolist()
    expected = []
    for number in best:
        members = ((groups == number) & allowed).nonzero()[:, 0]
        likeliest, word = int(members[mass[members].argmax()]), forms.words[number]
        text = vocabulary[likeliest] if inserted is None else inserted(likeliest)
        text = text[: len(text) - (len(vocabulary[likeliest]) - len(word))]
        suggestion = Suggestion(
            word,
            float(sums[number]) / (total or 1.0),
            float(base_sums[number]) / (base_total or 1.0),
            text,
        )
        expected.append(Expected(suggestion, dict.fromkeys(members.tolist(), 1.0 / (total or 1.0))))
    return expected
