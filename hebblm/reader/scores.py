"""Scores of a text that was read: the loss of each token, in nats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.report.result.numbers import perplexity
from hebblm.text.words import Words


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The losses of a text's tokens.

    A new word has no row in the softmax layer until the reader learns it. Before that its loss is
    that of ``<unk>``, which says that some new word came, not which. The same holds for a piece
    without an id in a subword tokenizer. ``bits_per_byte`` adds 8 bits a byte for their spelling.

    Args:
        tokens: T words, or the pieces of words that a subword model reads.
        nll: (T,) float32, ``-log P(token)`` in nats, before the reader learned from it.
        new: (T,) bool, tokens that had no row yet.
        bytes: UTF-8 bytes of the text.
        words: words of the text, and where its pieces lie in them; None if each token is a word.
        spelled: bytes that spell the new tokens, with an end for each.
        lost: least number of bytes that the tokenizer loses: ``bits_per_byte`` does not count them.
        unadapted: the same tokens under the trained base, with a row of zeros for each word learned
            since, which takes a share of every probability; None in these scores themselves.
    """

    tokens: tuple[str, ...]
    nll: Tensor
    new: Tensor
    bytes: int
    words: Words | None = None
    spelled: int = 0
    lost: int = 0
    unadapted: Scores | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def loss(self) -> float:
        """Mean loss in nats a token; nan without tokens."""
        return float(self.nll.double().mean())

    @property
    def perplexity(self) -> float:
        """``exp`` of the mean loss a token."""
        return perplexity(self.loss)

    @property
    def word_perplexity(self) -> float:
        """``exp`` of the mean loss a word; a word's loss is the sum of its tokens' losses."""
        return self.by_word().perplexity

    def by_word(self) -> Scores:
        """Return the losses of whole words, each the sum of its pieces' losses; a word with a new
        piece is new.

        Words are separated by spaces, and line breaks are words, whatever the tokenizer does. A
        piece of several words gives each an equal part of its loss.
        """
        if self.words is None:
            return self
        nll = torch.from_numpy(self.words.sums(self.nll.double().numpy())).float()
        new = torch.from_numpy(self.words.sums(self.new.double().numpy())) > 0
        unadapted = None if self.unadapted is None else self.unadapted.by_word()
        return Scores(
            self.words.texts, nll, new, self.bytes, None, self.spelled, self.lost, unadapted
        )

    @property
    def bits_per_byte(self) -> float:
        """Bits a byte of the text, including the spelling of words without a row; nan without
        bytes.
        """
        return self.bits / self.bytes if self.bytes else math.nan

    @property
    def bits(self) -> float:
        """Bits of the text, including the spelling of tokens without a row."""
        return float(self.nll.double().sum()) / math.log(2) + 8 * self.spelled

    def __repr__(self) -> str:
        base = "" if self.unadapted is None else f", unadapted {self.unadapted.perplexity:.1f}"
        return f"Scores({len(self)} tokens, perplexity {self.perplexity:.1f}{base})"


@dataclass(slots=True)
class Totals:
    """Sums of the scores of a text's parts, as :meth:`hebblm.Reader.read_pieces` yields them; drops
    the parts.

    Args:
        pieces: True if tokens are pieces of words, False if they are words.
        tokens: T.
        words: number of words; a word that spans two parts counts once.
        nats: sum of the tokens' losses.
        unadapted: the same sum under the trained base.
        bits: bits of the text, including the spelling of words without a row.
        unadapted_bits: the same under the trained base.
        bytes: UTF-8 bytes of the text.
        lost: least number of bytes that the tokenizer loses.
    """

    pieces: bool = False
    tokens: int = 0
    words: int = 0
    nats: float = 0.0
    unadapted: float = 0.0
    bits: float = 0.0
    unadapted_bits: float = 0.0
    bytes: int = 0
    lost: int = 0

    def add(self, part: Scores) -> None:
        """Add the scores of a further part."""
        assert part.unadapted is not None, "a reader scores the base as well"
        self.tokens += len(part)
        self.words += len(part) if part.words is None else len(part.words) - part.words.goes_on
        self.lost += part.lost
        self.nats += float(part.nll.double().sum())
        self.unadapted += float(part.unadapted.nll.double().sum())
        self.bits += part.bits
        self.unadapted_bits += part.unadapted.bits
        self.bytes += part.bytes

    @property
    def perplexity(self) -> float:
        """``exp`` of the mean loss a token; inf if a float cannot hold it, nan without tokens."""
        return perplexity(_mean(self.nats, self.tokens))

    def __str__(self) -> str:
        base = perplexity(_mean(self.unadapted, self.tokens))
        many, one, a_word, lost = f"{self.tokens:,} tokens", "token", "", ""
        if self.lost:
            lost = (
                f"; the tokenizer loses at least {100 * self.lost / self.bytes:.3g} % of the bytes"
            )
        if self.pieces:
            many, one = f"{self.tokens:,} pieces in {self.words:,} words", "piece"
            a_word = f", {perplexity(_mean(self.nats, self.words)):.1f} a word"
        return (
            f"{many}; perplexity {self.perplexity:.1f} a {one} (unadapted {base:.1f}){a_word}; "
            f"{_mean(self.bits, self.bytes):.2f} bits a byte (unadapted "
            f"{_mean(self.unadapted_bits, self.bytes):.2f})"
            f"{lost}"
        )


def _mean(total: float, count: int) -> float:
    return total / count if count else math.nan
