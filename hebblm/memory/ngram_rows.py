"""Contexts of tokens as rows, and the keys by which counts of n-grams find them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hebblm.memory.hash_table import MULTIPLIER, mixed

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

PAD = -1
"""Token of a context before the beginning of its text."""


@dataclass(frozen=True, slots=True)
class NGramRows:
    """Contexts with the tokens that follow them, in the order in which they are added."""

    contexts: Ints  # (N, order), the nearest token first
    tokens: Ints  # (N,)
    streams: Ints  # (N,) stream of each row; a row sees only rows of its own stream
    visible: Ints  # (N,) number of rows that were added before each one is scored

    @classmethod
    def of(cls, contexts: Ints, tokens: Ints) -> NGramRows:
        """Return the rows of a single stream; each row sees all rows before it."""
        return cls(contexts, tokens, np.zeros(len(tokens), dtype=np.int64), np.arange(len(tokens)))

    def within(self, vocabulary: int, room: int) -> NGramRows:
        """Return the same rows, but hide those that are not counted, or whose tokens have no
        probability yet.

        Args:
            vocabulary: number of tokens that have a probability.
            room: number of rows that are counted.
        """
        seen = (self.tokens < vocabulary) & (np.arange(len(self.tokens)) < room)
        return replace(self, streams=np.where(seen, self.streams, -1))

    def keys(self) -> Keys:
        """Return keys ((order + 1) N,) of the contexts of every length, the shortest first."""
        return context_keys(self.contexts).T.ravel()


def contexts_of(tokens: Ints, begin: int, order: int) -> Ints:
    """Return contexts (T - begin, order) of the tokens of a text (T,) from ``begin`` on, the
    nearest token first.
    """
    padded = np.r_[np.full(order, PAD, dtype=np.int64), tokens]
    # the farthest first
    windows = np.lib.stride_tricks.sliding_window_view(padded, order)[begin : len(tokens)]
    return windows[:, ::-1]


def context_keys(contexts: Ints) -> Keys:
    """Return keys (N, order + 1) of the contexts of every length, one token longer each time."""
    keys = np.empty((len(contexts), contexts.shape[1] + 1), dtype=np.uint64)
    keys[:, 0] = MULTIPLIER
    for n in range(contexts.shape[1]):
        keys[:, n + 1] = mixed(
            (keys[:, n] + contexts[:, n].astype(np.uint64) + np.uint64(2)) * MULTIPLIER
        )
    return keys
