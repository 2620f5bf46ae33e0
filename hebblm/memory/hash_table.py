"""Rows of integers that grow and are found by 64-bit keys, many at a time."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)

ABSENT = -1
"""Row of a key that is not there."""
# 2^64 over the golden ratio: neighbouring numbers end far apart
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# of the finaliser of SplitMix64 (Steele, Lea and Flood 2014)
SECOND = np.uint64(0xBF58476D1CE4E5B9)
HALF = np.uint64(32)  # bits
BLOCK = 1 << 16  # rows that are placed at once
FULLEST = 0.7  # of the index, above which it grows by half: probes stay short


class HashTable:
    """Open addressing with linear probing; rows are numbered from 0 in the order in which they are
    inserted.
    """

    def __init__(self, *columns: str) -> None:
        self.size = 0
        self.keys: Keys = np.zeros(16, dtype=np.uint64)
        self.columns = {name: np.zeros(16, dtype=np.int32) for name in columns}
        self._index = np.full(64, ABSENT, dtype=np.int32)  # slot -> row

    def __getitem__(self, name: str) -> npt.NDArray[np.int32]:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        return (
            self._index.nbytes
            + self.keys.nbytes
            + sum(column.nbytes for column in self.columns.values())
        )

    def find(self, keys: Keys) -> Ints:
        """Return the rows (N,) of keys (N,), ABSENT for a key that is not there."""
        slots = self._slots(keys)
        rows = self._index[slots].astype(np.int64)
        # another key sits there
        open_ = np.flatnonzero((rows != ABSENT) & (self.keys[rows] != keys))
        while len(open_):
            slots[open_] = (slots[open_] + 1) % len(self._index)
            rows[open_] = self._index[slots[open_]]
            taken = rows[open_]
            open_ = open_[(taken != ABSENT) & (self.keys[taken] != keys[open_])]
        return rows

    def insert(self, keys: Keys) -> Ints:
        """Add rows (N,), zero in every column, for keys (N,) that are distinct and not there
        yet.
        """
        first = self.size
        self.size += len(keys)
        if self.size > len(self.keys):
            room = max(self.size, len(self.keys) * 9 // 8)
            self.keys = grown(self.keys, room)
            for name in self.columns:  # one after the other, so that few are in memory twice
                self.columns[name] = grown(self.columns[name], room)
        self.keys[first : self.size] = keys
        start = first
        if self.size > FULLEST * len(self._index):
            size = len(self._index)
            while self.size > FULLEST * size:
                size = size * 3 // 2
            del self._index  # freed before the next one is made
            self._index = np.full(size, ABSENT, dtype=np.int32)
            start = 0
        for begin in range(start, self.size, BLOCK):
            self._place(np.arange(begin, min(begin + BLOCK, self.size)))
        return np.arange(first, self.size)

    def found_or_inserted(self, keys: Keys) -> Ints:
        """Return the rows (N,) of distinct keys (N,), and insert those that are not there yet."""
        rows = self.find(keys)
        rows[rows == ABSENT] = self.insert(keys[rows == ABSENT])
        return rows

    def _slots(self, keys: Keys) -> Ints:
        high = mixed(keys * MULTIPLIER) >> HALF
        return (high * np.uint64(len(self._index)) >> HALF).astype(np.int64)

    def _place(self, rows: Ints) -> None:
        slots = self._slots(self.keys[rows])
        while len(rows):
            free = self._index[slots] == ABSENT
            # of several that claim a slot, the last one gets it
            self._index[slots[free]] = rows[free]
            left = self._index[slots] != rows
            rows, slots = rows[left], (slots[left] + 1) % len(self._index)


def grown(array: npt.NDArray[Number], room: int) -> npt.NDArray[Number]:
    """Return a copy with zeros after it."""
    larger = np.zeros(room, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def mixed(keys: Keys) -> Keys:
    """Spread the bits of keys, one to one (the finaliser of SplitMix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * SECOND
    return keys ^ (keys >> np.uint64(27))
