"""Counts of n-grams over what was read: a memory of the exact words, by hash tables over arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)

PAD = -1
"""Token of a context before the beginning of its text."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: neighbouring numbers end far apart
SECOND = np.uint64(0xBF58476D1CE4E5B9)  # of the finaliser of SplitMix64 (Steele, Lea and Flood 2014)
FULLEST = 0.6  # of an index, above which it doubles: probes stay short
BLOCK = 1 << 16  # tokens counted at once when a long text is added


class Discounts(NamedTuple):
    """What a follower seen once, twice, or more often gives to shorter contexts."""

    once: float
    twice: float
    more: float


SHORT, LONG = Discounts(0.7, 1.1, 1.5), Discounts(0.5, 0.8, 1.0)
LONG_FROM = 3  # tokens of a context whose discounts are those of LONG


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the next token before it is known.

    Args:
        log_prob: (N,) of the token asked for, nats.
        length: (N,) tokens of the longest context seen before.
        peak: (N,) share of its most frequent follower.
        count: (N,) how often it was followed by anything.
    """

    log_prob: Floats
    length: Ints
    peak: Floats
    count: Ints


@dataclass(frozen=True, slots=True)
class NGramRows:
    """Contexts with the tokens that follow them, in the order in which they are added."""

    contexts: Ints  # (N, order), the nearest token first
    tokens: Ints  # (N,)
    streams: Ints  # (N,) of each row: rows see those of their own stream alone
    visible: Ints  # (N,) how many of the rows were added before each one is asked for

    @classmethod
    def of(cls, contexts: Ints, tokens: Ints) -> NGramRows:
        """Rows of a single stream, each of which sees all before it."""
        return cls(contexts, tokens, np.zeros(len(tokens), dtype=np.int64), np.arange(len(tokens)))

    def within(self, vocabulary: int) -> NGramRows:
        """The same, but nobody sees rows whose tokens are beyond a vocabulary: these have no probability yet."""
        return replace(self, streams=np.where(self.tokens < vocabulary, self.streams, -1))

    def keys(self) -> Keys:
        """Keys ((order + 1) N,) of the contexts of every length, the shortest first."""
        return _context_keys(self.contexts).T.ravel()


class _Table:
    """Rows of integers that grow, found by 64-bit keys: open addressing with linear probing, many keys at a time."""

    def __init__(self, *columns: str) -> None:
        self.size = 0
        self.keys: Keys = np.zeros(16, dtype=np.uint64)
        self.columns = {name: np.zeros(16, dtype=np.int32) for name in columns}
        self._index = np.full(64, PAD, dtype=np.int32)  # slot -> row

    def __getitem__(self, name: str) -> npt.NDArray[np.int32]:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self.keys.nbytes + sum(column.nbytes for column in self.columns.values())

    def find(self, keys: Keys) -> Ints:
        """Rows (N,) of keys (N,), PAD for one that is not there."""
        mask = np.uint64(len(self._index) - 1)
        slots = (keys & mask).astype(np.int64)
        rows = self._index[slots].astype(np.int64)
        open_ = np.flatnonzero((rows != PAD) & (self.keys[rows] != keys))  # another key sits there
        while len(open_):
            slots[open_] = (slots[open_] + 1) & int(mask)
            rows[open_] = self._index[slots[open_]]
            taken = rows[open_]
            open_ = open_[(taken != PAD) & (self.keys[taken] != keys[open_])]
        return rows

    def insert(self, keys: Keys) -> Ints:
        """New rows (N,), zero in every column, for keys (N,) that are distinct and not there."""
        first, self.size = self.size, self.size + len(keys)
        rows = np.arange(first, self.size)
        if self.size > len(self.keys):
            room = max(self.size, len(self.keys) * 3 // 2)
            self.keys = _grown(self.keys, room)
            self.columns = {name: _grown(column, room) for name, column in self.columns.items()}
        self.keys[rows] = keys
        if self.size > FULLEST * len(self._index):
            size = len(self._index)
            while self.size > FULLEST * size:
                size *= 2
            self._index = np.full(size, PAD, dtype=np.int32)
            self._place(np.arange(self.size))
        else:
            self._place(rows)
        return rows

    def _place(self, rows: Ints) -> None:
        mask = len(self._index) - 1
        slots = (self.keys[rows] & np.uint64(mask)).astype(np.int64)
        while len(rows):
            free = self._index[slots] == PAD
            self._index[slots[free]] = rows[free]  # of several that claim a slot, the last one gets it
            left = self._index[slots] != rows
            rows, slots = rows[left], (slots[left] + 1) & mask


def _grown(array: npt.NDArray[Number], room: int) -> npt.NDArray[Number]:
    larger = np.zeros(room, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class NGrams:
    """Counts of the followers of contexts of 0 to ``order`` tokens, and the probabilities they give.

    Interpolated absolute discounting with a discount for followers seen once, twice and more often, as in modified
    Kneser-Ney (Chen and Goodman 1999), but with plain counts. Of a context c of n tokens with count C(c) > 0::

        p_n(w | c) = max(C(c w) - D(C(c w)), 0) / C(c) + (D1 N1 + D2 N2 + D3 N3+)(c) / C(c) p_(n-1)(w | c')

    where c' lacks the first token of c and N1, N2, N3+ count the followers of c seen once, twice and more often. Below
    order 0 stands another distribution, that of the base. Contexts end at the longest one that was seen.

    Args:
        order: tokens of the longest context.
        capacity: tokens after which nothing is added, so that memory stays bounded.

    Raises:
        UserError: an order or capacity below 1.
    """

    def __init__(self, order: int = 5, capacity: int = 20_000_000) -> None:
        if order < 1 or capacity < 1:
            raise UserError(f"ngram.order = {order} and ngram.capacity = {capacity} must be at least 1")
        self.order = order
        self.capacity = capacity
        self._base: dict[str, npt.NDArray[np.generic]] | None = None
        self.reset()

    def mark_base(self) -> None:
        """Take what was added so far for what :meth:`reset` returns to."""
        self._base = {name: column.copy() for name, column in self.state_dict().items()}

    def reset(self) -> None:
        """Forget everything, or all that was added since :meth:`mark_base`."""
        self._clear()
        if self._base is not None:
            self.load_state_dict(self._base)

    def _clear(self) -> None:
        self.tokens = 0
        self._contexts = _Table("total", "kinds", "once", "twice", "peak")
        self._pairs = _Table("count")

    @property
    def nbytes(self) -> int:
        return self._contexts.nbytes + self._pairs.nbytes

    def context_after(self, tokens: Sequence[int]) -> Ints:
        """Context (order,) of what comes after some tokens of a text, which may be more or fewer than it holds."""
        context = np.full(self.order, PAD)
        nearest = tokens[: -self.order - 1 : -1]
        context[: len(nearest)] = nearest
        return context

    def add(self, contexts: Ints, tokens: Ints) -> None:
        """Count tokens (N,) behind their contexts (N, order), the nearest token first, PAD where a text begins.

        At ``capacity`` the rest is left out.
        """
        room = self.capacity - self.tokens
        contexts, tokens = contexts[:room], tokens[:room]
        self.tokens += len(tokens)
        for begin in range(0, len(tokens), BLOCK):
            self._add(contexts[begin : begin + BLOCK], tokens[begin : begin + BLOCK])

    def add_text(self, tokens: Ints) -> None:
        """Count a text (T,) from its beginning."""
        for begin in range(0, len(tokens), BLOCK):
            end = min(begin + BLOCK, len(tokens))
            self.add(contexts_of(tokens[:end], begin, self.order), tokens[begin:end])

    def _add(self, contexts: Ints, tokens: Ints) -> None:
        keys, there = _context_keys(contexts), np.c_[np.ones(len(tokens), dtype=bool), contexts != PAD]
        keys, tokens = keys[there], np.broadcast_to(tokens[:, None], there.shape)[there]  # of all lengths at once
        unique, number = np.unique(keys, return_inverse=True)
        rows = self._contexts.find(unique)
        rows[rows == PAD] = self._contexts.insert(unique[rows == PAD])
        pair_keys = _pair_keys(keys, tokens)
        pairs, first, added = np.unique(pair_keys, return_index=True, return_counts=True)
        owners = rows[number[first]]
        found = self._pairs.find(pairs)
        new = found == PAD
        found[new] = self._pairs.insert(pairs[new])
        before = self._pairs["count"][found]
        after = before + added.astype(np.int32)
        self._pairs["count"][found] = after
        table = self._contexts
        np.add.at(table["total"], owners, added.astype(np.int32))
        np.add.at(table["kinds"], owners, (before == 0).astype(np.int32))
        for name, times in (("once", 1), ("twice", 2)):
            np.add.at(table[name], owners, (after == times).astype(np.int32) - (before == times))
        np.maximum.at(table["peak"], owners, after)

    def score(
        self, rows: NGramRows, vocabulary: int, targets: Ints | None = None, lowest: Floats | None = None
    ) -> Seen:
        """Probability of each token, had the rows that it sees been added already; nothing is added.

        Args:
            rows: N contexts, and the tokens after them.
            vocabulary: tokens there are; later ones among the rows are not counted yet.
            targets: (N,) the tokens asked for; None for those of the rows.
            lowest: (N,) their probabilities below order 0; None for equal ones.
        """
        asked = rows if targets is None else replace(rows, tokens=targets)
        lowest = np.full(len(rows.tokens), 1 / vocabulary) if lowest is None else lowest
        return self._interpolated(self._seen(asked, rows.within(vocabulary)), rows.contexts, lowest)

    def distributions(self, rows: NGramRows, vocabulary: int, lowest: Floats | None = None) -> Floats:
        """Log-probabilities (N, V) of every token after each row; see :meth:`score`."""
        lowest = np.full((len(rows.tokens), vocabulary), 1 / vocabulary) if lowest is None else lowest
        every, added = np.arange(vocabulary), rows.within(vocabulary)
        found = np.empty((len(rows.tokens), vocabulary))
        for index, context in enumerate(rows.contexts):
            asked = NGramRows(
                np.broadcast_to(context, (vocabulary, self.order)),
                every,
                np.full(vocabulary, rows.streams[index]),
                np.full(vocabulary, rows.visible[index]),
            )
            found[index] = self._interpolated(self._seen(asked, added), asked.contexts, lowest[index]).log_prob
        return found

    def _interpolated(self, every: _Counts, contexts: Ints, probability: Floats) -> Seen:
        """Probabilities by the counts (L N,) of contexts of every length, the shortest first."""
        count = len(contexts)
        length, peak, total_at = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64)
        reached = np.ones(count, dtype=bool)
        for n in range(self.order + 1):
            if n:
                reached &= contexts[:, n - 1] != PAD
            seen = _Counts(*(column[n * count : (n + 1) * count] for column in every))
            reached &= seen.total > 0
            if not reached.any():
                break
            d = LONG if n >= LONG_FROM else SHORT
            total = np.maximum(seen.total, 1)
            given = d.once * seen.once + d.twice * seen.twice + d.more * (seen.kinds - seen.once - seen.twice)
            discount = np.select([seen.wanted == 0, seen.wanted == 1, seen.wanted == 2], [0, d.once, d.twice], d.more)
            found = (seen.wanted - discount) / total + given / total * probability
            probability = np.where(reached, found, probability)
            length[reached] = n
            peak[reached] = (seen.peak / total)[reached]
            total_at[reached] = seen.total[reached]
        with np.errstate(divide="ignore"):  # of a token that the lowest order gives nothing
            return Seen(np.log(probability), length, peak, total_at)

    def _seen(self, asked: NGramRows, added: NGramRows) -> _Counts:
        """Counts (L N,) as of each row: those of the tables, and of the visible rows among those that are added."""
        lengths, size = self.order + 1, len(added.tokens)
        keys, tokens, streams = asked.keys(), np.tile(asked.tokens, lengths), np.tile(asked.streams, lengths)
        visible = (asked.visible + size * np.arange(lengths)[:, None]).ravel()
        context_rows, pair_rows = self._contexts.find(keys), self._pairs.find(_pair_keys(keys, tokens))
        known = context_rows != PAD
        stored = {
            name: np.where(known, self._contexts[name][context_rows], 0).astype(np.int64)
            for name in _Counts._fields[:5]
        }
        count = np.where(pair_rows != PAD, self._pairs["count"][pair_rows], 0).astype(np.int64)
        if not asked.visible.any():
            return _Counts(**stored, wanted=count)
        # Added rows of the same stream and context, in their order; rows of all lengths are numbered in a row.
        new_keys, new_tokens = added.keys(), np.tile(added.tokens, lengths)
        size *= lengths
        owner = np.unique(
            _mixed(
                np.r_[new_keys, keys]
                ^ _mixed(np.r_[np.tile(added.streams, lengths), streams].astype(np.uint64) + np.uint64(1))
            ),
            return_inverse=True,
        )[1]
        new, own = owner[:size], owner[size:]
        order = np.argsort(new, kind="stable")
        place = new[order] * (size + 1) + order  # ascending
        low = np.searchsorted(place, own * (size + 1))
        high = np.searchsorted(place, own * (size + 1) + visible)
        # How often each added pair was seen once its row is counted: what it changes of its context.
        pair = np.unique(_pair_keys(owner.astype(np.uint64), np.r_[new_tokens, tokens]), return_inverse=True)[1]
        new_pair, pair = pair[:size], pair[size:]
        pair_order = np.argsort(new_pair, kind="stable")
        pair_place = new_pair[pair_order] * (size + 1) + pair_order
        pair_rows = self._pairs.find(_pair_keys(new_keys, new_tokens))
        after = np.where(pair_rows != PAD, self._pairs["count"][pair_rows], 0).astype(np.int64) + 1
        after += np.searchsorted(pair_place, new_pair * (size + 1) + np.arange(size))
        after -= np.searchsorted(pair_place, new_pair * (size + 1))
        count += np.searchsorted(pair_place, pair * (size + 1) + visible)
        count -= np.searchsorted(pair_place, pair * (size + 1))
        changes = {
            "total": np.ones(size, dtype=np.int64),
            "kinds": (after == 1).astype(np.int64),
            "once": (after == 1).astype(np.int64) - (after == 2),
            "twice": (after == 2).astype(np.int64) - (after == 3),
        }
        for name, change in changes.items():
            sums = np.r_[0, np.cumsum(change[order])]
            stored[name] += sums[high] - sums[low]
        # The largest count so far in each context: a running maximum that begins anew with each of them.
        step = int(after.max()) + 1
        highest = np.maximum.accumulate(new[order] * step + after[order]) - new[order] * step
        largest = np.maximum(stored["peak"], highest[np.maximum(high, 1) - 1])
        stored["peak"] = np.where(high > low, largest, stored["peak"])
        return _Counts(**stored, wanted=count)

    def state_dict(self) -> dict[str, npt.NDArray[np.generic]]:
        """All counts as arrays, to be kept."""
        found: dict[str, npt.NDArray[np.generic]] = {"tokens": np.array([self.tokens, self.order])}
        for name, table in (("contexts", self._contexts), ("pairs", self._pairs)):
            found[f"{name} keys"] = table.keys[: table.size].view(np.int64)
            found |= {f"{name} {key}": column[: table.size] for key, column in table.columns.items()}
        return found

    def load_state_dict(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self._clear()
        self.tokens, self.order = (int(number) for number in state["tokens"])
        for name, table in (("contexts", self._contexts), ("pairs", self._pairs)):
            rows = table.insert(np.ascontiguousarray(state[f"{name} keys"]).view(np.uint64))
            for key, column in table.columns.items():
                column[rows] = state[f"{name} {key}"]


class _Counts(NamedTuple):
    """Counts of a context as of each row, (N,), and of the token asked for."""

    total: Ints
    kinds: Ints
    once: Ints
    twice: Ints
    peak: Ints
    wanted: Ints


def contexts_of(tokens: Ints, begin: int, order: int) -> Ints:
    """Contexts (T - begin, order) of the tokens of a text (T,) from ``begin`` on, the nearest token first."""
    padded = np.r_[np.full(order, PAD, dtype=np.int64), tokens]
    windows = np.lib.stride_tricks.sliding_window_view(padded, order)[begin : len(tokens)]  # the farthest first
    return windows[:, ::-1]


def _mixed(keys: Keys) -> Keys:
    """Spread the bits of keys, one to one (the finaliser of SplitMix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * SECOND
    return keys ^ (keys >> np.uint64(27))


def _context_keys(contexts: Ints) -> Keys:
    """Keys (N, order + 1) of the contexts of every length, one token longer each time."""
    keys = np.empty((len(contexts), contexts.shape[1] + 1), dtype=np.uint64)
    keys[:, 0] = MULTIPLIER
    for n in range(contexts.shape[1]):
        keys[:, n + 1] = _mixed((keys[:, n] + contexts[:, n].astype(np.uint64) + np.uint64(2)) * MULTIPLIER)
    return keys


def _pair_keys(keys: Keys, tokens: Ints) -> Keys:
    """Keys (N,) of contexts with their followers."""
    return _mixed(_mixed(keys) + (tokens.astype(np.uint64) + np.uint64(1)) * MULTIPLIER)
