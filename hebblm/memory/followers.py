"""Counts of the tokens that follow contexts, found by both or listed by context."""

from __future__ import annotations

import numpy as np

from hebblm.memory.hash_table import ABSENT, HALF, HashTable, Ints, Keys

TOKEN = 0xFFFFFFFF  # the lower half of a key, above which stands the row of the context


class Followers(HashTable):
    """HashTable of ``count`` by context, which is a row of another table, and token.

    For listing, it keeps runs of sorted numbers beside: a context above a row of this table, the longest run first.
    Runs of like length are merged, so that each row moves a few times while a text is read. There are none before the
    first list is asked for.
    """

    def __init__(self) -> None:
        super().__init__("count")
        self._runs: list[Ints] = []
        self._listed = 0  # rows that are in them

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(run.nbytes for run in self._runs)

    @staticmethod
    def keys_of(contexts: Ints, tokens: Ints) -> Keys:
        return contexts.astype(np.uint64) << HALF | tokens.astype(np.uint64)

    def counts(self, contexts: Ints, tokens: Ints) -> Ints:
        """How often each of some tokens (N,) followed its context (N,)."""
        rows = self.find(self.keys_of(contexts, tokens))
        return np.where(rows != ABSENT, self["count"][rows], 0).astype(np.int64)

    def lists(self, contexts: Ints) -> tuple[Ints, Ints, Ints]:
        """All followers (M,) of some contexts (N,): the number of the context of each, its token, its count."""
        self._list()
        numbers, rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for run in self._runs:
            begin, end = np.searchsorted(run, [contexts << 32, contexts + 1 << 32])
            length = end - begin
            numbers.append(np.repeat(np.arange(len(contexts)), length))
            inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            rows.append(run[np.repeat(begin, length) + inside] & TOKEN)
        found = np.concatenate(rows)
        return np.concatenate(numbers), tokens_of(self.keys[found]), self["count"][found].astype(np.int64)

    def _list(self) -> None:
        if self.size == self._listed:
            return
        new = np.arange(self._listed, self.size)
        run, self._listed = np.sort(contexts_of_keys(self.keys[new]) << 32 | new), self.size
        while self._runs and len(self._runs[-1]) < 4 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")  # it merges what is sorted
        self._runs.append(run)


def contexts_of_keys(keys: Keys) -> Ints:
    """Contexts (N,) of keys."""
    return (keys >> HALF).astype(np.int64)


def tokens_of(keys: Keys) -> Ints:
    """Tokens (N,) of keys."""
    return (keys & np.uint64(TOKEN)).astype(np.int64)
