"""Counts of the tokens that follow contexts: look up a pair, or list a context's tokens."""

from __future__ import annotations

import numpy as np

from hebblm.memory.hash_table import ABSENT, HALF, HashTable, Ints, Keys

TOKEN = 0xFFFFFFFF  # mask of a key's lower half; the upper half is the row of the context


class Followers(HashTable):
    """HashTable of ``count`` by context, which is a row of another table, and token.

    For listing, it also keeps runs of sorted numbers, the longest run first: the upper half of a
    number is a context, the lower half a row of this table. Runs of similar length are merged, so
    that each row moves only a few times while a text is read. The first listing builds the first
    run.
    """

    def __init__(self) -> None:
        super().__init__("count")
        self._runs: list[Ints] = []
        self._listed = 0  # rows that are in the runs

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(run.nbytes for run in self._runs)

    @staticmethod
    def keys_of(contexts: Ints, tokens: Ints) -> Keys:
        return contexts.astype(np.uint64) << HALF | tokens.astype(np.uint64)

    def counts(self, contexts: Ints, tokens: Ints) -> Ints:
        """Return how often each of some tokens (N,) followed its context (N,)."""
        rows = self.find(self.keys_of(contexts, tokens))
        return np.where(rows != ABSENT, self["count"][rows], 0).astype(np.int64)

    def lists(self, contexts: Ints) -> tuple[Ints, Ints, Ints]:
        """Return all followers (M,) of some contexts (N,): number of the context, token and count
        of each.
        """
        self._list()
        numbers = [np.zeros(0, dtype=np.int64)]
        rows = [np.zeros(0, dtype=np.int64)]
        for run in self._runs:
            begin, end = np.searchsorted(run, [contexts << 32, contexts + 1 << 32])
            length = end - begin
            numbers.append(np.repeat(np.arange(len(contexts)), length))
            inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            rows.append(run[np.repeat(begin, length) + inside] & TOKEN)
        entries = np.concatenate(rows)
        return (
            np.concatenate(numbers),
            tokens_of(self.keys[entries]),
            self["count"][entries].astype(np.int64),
        )

    def _list(self) -> None:
        if self.size == self._listed:
            return
        new = np.arange(self._listed, self.size)
        run = np.sort(contexts_of_keys(self.keys[new]) << 32 | new)
        self._listed = self.size
        while self._runs and len(self._runs[-1]) < 4 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # a stable sort merges sorted parts
        self._runs.append(run)


def contexts_of_keys(keys: Keys) -> Ints:
    """Contexts (N,) of keys."""
    return (keys >> HALF).astype(np.int64)


def tokens_of(keys: Keys) -> Ints:
    """Tokens (N,) of keys."""
    return (keys & np.uint64(TOKEN)).astype(np.int64)
