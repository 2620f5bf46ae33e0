"""Whole words that a model of pieces expects next, found by a beam over pieces."""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.expected import Expected, Suggestion
from hebblm.text.subwords import Subwords

WIDTH = 24  # beginnings of words that are followed for one answer, at most, or three for each word
LONGEST = 12  # the most pieces of a word that is suggested
NEAR = 1e-9  # nats between sums of the same terms in another order
LAST = chr(0x10FFFF)  # after every letter
_FIRST = re.compile(r"\S+|\n")  # words as hebblm.text.words counts them
Expect = Callable[[Sequence[tuple[int, ...]]], tuple[Tensor, Tensor]]


class PieceTexts:
    """What each of V pieces does to the word before it."""

    def __init__(self, vocabulary: Subwords) -> None:
        self._vocabulary = vocabulary
        self._anchor = vocabulary.encode("a").ids  # some tokenizers drop the blank of a first piece
        self._before = len(vocabulary.join(self._anchor))
        self.special = {index for index in vocabulary.tokenizer.all_special_ids if index < len(vocabulary)}

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of some pieces in the middle of a text."""
        return self._vocabulary.join([*self._anchor, *ids])[self._before :]

    @cached_property
    def _texts(self) -> list[str]:
        rows = [[*self._anchor, index] for index in range(len(self._vocabulary))]
        decoded = self._vocabulary.tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False)
        return [text[self._before :] for text in decoded]

    @cached_property
    def ends(self) -> Tensor:
        """Which pieces (V,) end the word before them: they begin with a blank, or are special."""
        return torch.tensor([text[:1].isspace() or index in self.special for index, text in enumerate(self._texts)])

    @cached_property
    def plain(self) -> Tensor:
        """Which pieces (V,) stand for text: all but the special ones."""
        return torch.tensor([index not in self.special for index in range(len(self._texts))])

    @cached_property
    def breaks(self) -> Tensor:
        """Which pieces (V,) begin with a line break, after blanks or none."""
        return torch.tensor([text.lstrip(" \t\r").startswith("\n") for text in self._texts])

    @cached_property
    def never(self) -> Tensor:
        """Which pieces (V,) are in no word: those without text, and ``<unk>``."""
        return torch.tensor([not text or at == self._vocabulary.unknown for at, text in enumerate(self._texts)])

    @cached_property
    def _sorted(self) -> tuple[list[str], Tensor]:
        """Texts (V,) without the blank before them, in order, and the pieces (V,) that have them."""
        letters = [text.lstrip() for text in self._texts]
        order = sorted(range(len(letters)), key=letters.__getitem__)
        return [letters[index] for index in order], torch.tensor(order)

    def towards(self, left: str) -> Tensor:
        """Which pieces (V,) begin with the letters left to type, or are their beginning."""
        letters, order = self._sorted
        fits = torch.zeros(len(order), dtype=torch.bool)
        for count in range(len(left)):
            fits[order[bisect_left(letters, left[:count]) : bisect_right(letters, left[:count])]] = True
        fits[order[bisect_left(letters, left) : bisect_left(letters, left + LAST)]] = True
        return fits


class _Begun(NamedTuple):
    """The beginning of a word: its log-probabilities in nats, the first one with its sign changed."""

    cost: float
    ids: tuple[int, ...]
    text: str
    base: float


class _Found:
    """Words found so far: their probabilities, and those of the rest after each first piece.

    Args:
        plain: whether words with other blanks before them are the same.
    """

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self._words: dict[str, list[float]] = {}
        self._rest: dict[str, dict[int, float]] = {}

    def add(self, word: str, first: int, adapted: float, base: float, of_first: float) -> None:
        """Add one way to write a word, by log-probabilities of it and of its first piece."""
        if adapted == -math.inf:
            return
        word = word.strip() or "\n" if self._plain else word
        both, rest = self._words.setdefault(word, [0.0, 0.0]), self._rest.setdefault(word, {})
        both[0] += math.exp(adapted)
        both[1] += math.exp(base)
        rest[first] = rest.get(first, 0.0) + math.exp(adapted - of_first)

    def best(self, n: int) -> list[Expected]:
        best = heapq.nlargest(n, self._words.items(), key=lambda item: item[1][0])
        return [Expected(Suggestion(word, *both), self._rest[word]) for word, both in best]

    def least(self, n: int) -> float:
        """Return the logarithm of the n-th best probability, or of 0 without so many."""
        best = heapq.nlargest(n, (both[0] for both in self._words.values()))
        return math.log(best[-1]) if len(best) == n and best[-1] else -math.inf


def words_ahead(
    expect: Expect,
    pieces: PieceTexts,
    n: int,
    width: int,
    *,
    begins: Tensor | None = None,
    typed: str = "",
    above: float = -math.inf,
) -> list[Expected]:
    """Return the n most probable whole words, most probable first.

    A word ends before a blank, a line break or the end of the text. Its probability is the product of its pieces',
    times that of such an end; ways to write the same word add up. The likeliest beginnings are followed first, n + 1 at
    once, until the n-th word found is as probable as the best beginning left. Its words are less so, unless several
    ways to write one add up.

    Args:
        expect: log-probabilities (R, V) in nats after R rows of pieces, adapted and not.
        pieces: what each piece does to the word before it.
        n: number of words.
        width: the most beginnings that are followed.
        begins: pieces (V,) that a new word may begin with; its ways to be written add up, whatever blanks come before
            it, and it is found without them. None: words may go on with the one before, and have their blanks.
        typed: letters that the words begin with.
        above: log-probability in nats of a word; the search ends as soon as n words have a higher one, and follows no
            beginning with a lower one.
    """
    found, left, first = _Found(begins is not None), [_Begun(0.0, (), "", 0.0)], torch.empty(0)
    while left and width > 0 and not found.least(n) > above + NEAR > -math.inf:
        count = min(n + 1, width)
        begun, left = left[:count], left[count:]
        width -= len(begun) if len(first) else 0
        adapted, base = (part.double().cpu() for part in expect([each.ids for each in begun]))
        first = first if len(first) else adapted[0]
        adapted, base = (
            part + torch.tensor([before], dtype=torch.float64).T
            for part, before in ((adapted, [-each.cost for each in begun]), (base, [each.base for each in begun]))
        )
        ahead = adapted.clone()
        for row, each in enumerate(begun):
            letters = each.text.strip()
            last = pieces.ends if letters else pieces.breaks
            if not letters.startswith(typed):
                ahead[row, ~pieces.towards(typed[len(letters) :])] = -torch.inf
            elif each.ids and last.any():
                ways, plain = (float(part[row, last].logsumexp(0)) for part in (adapted, base))
                found.add(each.text if letters else "\n", each.ids[0], ways, plain, float(first[each.ids[0]]))
            elif not each.ids:
                for index in last.nonzero()[:, 0].tolist():
                    found.add("\n", index, float(adapted[0, index]), float(base[0, index]), float(first[index]))
            ahead[row, last | pieces.never] = -torch.inf
            if not each.ids and begins is not None:
                ahead[row, ~begins] = -torch.inf
        best = ahead.flatten().topk(min(max(width, 1), ahead.numel()))
        for value, at in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            row, index = divmod(at, ahead.shape[1])
            if value <= above - NEAR:
                break
            ids, below = (*begun[row].ids, index), float(base[row, index])
            text = pieces.text(ids)
            word = _FIRST.search(text)
            if index in pieces.special or (word is not None and word.end() < len(text)):
                if word is not None and not word[0].startswith(typed):
                    continue
                found.add(text if word is None else text[: word.end()], ids[0], value, below, float(first[ids[0]]))
            elif len(ids) <= LONGEST:
                left.append(_Begun(-value, ids, text, below))
        least = max(found.least(n), above - NEAR)
        left = sorted(each for each in left if -each.cost > least)
    return found.best(n)
