"""Scores of a text that was read: the loss of each token, in nats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.text.words import Words


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The losses of a text's tokens.

    A new word has no row in the softmax layer until it was learned, and is charged as ``<unk>`` before that: the loss
    says that some new word came, not which. So is a piece that a subword tokenizer has no id for. ``bits_per_byte``
    adds 8 bits a byte for their spelling.

    Args:
        tokens: T words, or the pieces of words that a subword model reads.
        nll: (T,) float32, ``-log P(token)`` in nats, before it was learned from.
        new: (T,) bool, tokens that had no row yet.
        bytes: UTF-8 bytes of the text.
        words: words of the text, and where its pieces lie in them; None where each token is a word.
        spelled: bytes by which the new tokens are spelled, an end each.
        lost: bytes that the tokenizer loses, at least: ``bits_per_byte`` does not pay for them.
        unadapted: the same tokens under the base with the weights of training, and a row of zeros for each word learned
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
        """Return the number of tokens T."""
        return len(self.tokens)

    @property
    def loss(self) -> float:
        """Mean loss in nats a token; nan without tokens."""
        return float(self.nll.double().mean())

    @property
    def perplexity(self) -> float:
        """``exp`` of the mean loss a token."""
        return _perplexity(self.loss)

    @property
    def word_perplexity(self) -> float:
        """``exp`` of the mean loss a word, each of which costs the sum of its tokens."""
        return self.by_word().perplexity

    def by_word(self) -> Scores:
        """Return the losses of whole words, each the sum of its pieces'; new where one of them was.

        Words are what stands between blanks, and line breaks, whatever the tokenizer: a piece of several words gives
        each an equal part of its loss.
        """
        if self.words is None:
            return self
        nll = torch.from_numpy(self.words.sums(self.nll.double().numpy())).float()
        new = torch.from_numpy(self.words.sums(self.new.double().numpy())) > 0
        unadapted = None if self.unadapted is None else self.unadapted.by_word()
        return Scores(self.words.texts, nll, new, self.bytes, None, self.spelled, self.lost, unadapted)

    @property
    def bits_per_byte(self) -> float:
        """Bits a byte of the text, the spelling of words without a row included; nan without bytes."""
        return self.bits / self.bytes if self.bytes else math.nan

    @property
    def bits(self) -> float:
        """Bits of the text, the spelling of tokens without a row included."""
        return float(self.nll.double().sum()) / math.log(2) + 8 * self.spelled

    def __repr__(self) -> str:
        """Say how much was read, and how well."""
        beside = "" if self.unadapted is None else f", unadapted {self.unadapted.perplexity:.1f}"
        return f"Scores({len(self)} tokens, perplexity {self.perplexity:.1f}{beside})"


@dataclass(slots=True)
class Totals:
    """Sums of the scores of a text's parts; none of them is held.

    Args:
        tokens: T.
        nats: sum of their losses.
        unadapted: that under the base as it was trained.
        bits: with the spelling of words without a row.
        bytes: UTF-8 bytes of the text.
    """

    tokens: int = 0
    nats: float = 0.0
    unadapted: float = 0.0
    bits: float = 0.0
    bytes: int = 0

    def add(self, part: Scores) -> None:
        """Take in the scores of a further part."""
        assert part.unadapted is not None, "a reader scores the base as well"
        self.tokens += len(part)
        self.nats += float(part.nll.double().sum())
        self.unadapted += float(part.unadapted.nll.double().sum())
        self.bits += part.bits
        self.bytes += part.bytes

    @property
    def perplexity(self) -> float:
        """``exp`` of the mean loss a token; inf beyond what can be written, nan without tokens."""
        return _perplexity(self.nats / self.tokens if self.tokens else math.nan)

    def __str__(self) -> str:
        """Say how much was read, and how well."""
        base = _perplexity(self.unadapted / self.tokens if self.tokens else math.nan)
        a_byte = self.bits / self.bytes if self.bytes else math.nan
        return (
            f"{self.tokens:,} tokens, perplexity {self.perplexity:.1f} (unadapted {base:.1f}), {a_byte:.2f} bits a byte"
        )


def _perplexity(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
