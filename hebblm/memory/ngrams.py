"""Counts of n-grams of the text read: a memory of the exact words, in hash tables over arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError
from hebblm.memory.followers import Followers, contexts_of_keys, tokens_of
from hebblm.memory.hash_table import ABSENT, MULTIPLIER, HashTable, grown, mixed
from hebblm.memory.ngram_rows import PAD, NGramRows, context_keys, contexts_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Array = npt.NDArray[np.generic]

BLOCK = 1 << 16  # tokens counted at once when a long text is added


class Discounts(NamedTuple):
    """Discounts of followers seen once, twice, or more often; shorter contexts share them out."""

    once: float
    twice: float
    more: float

    def left(self, counts: npt.NDArray[np.integer]) -> Floats:
        """Return counts minus their discounts."""
        taken: Floats = np.array([0.0, *self])[np.minimum(counts, 3)]
        return counts - taken


SHORT, LONG = Discounts(0.7, 1.1, 1.5), Discounts(0.5, 0.8, 1.0)
LONG_FROM = 3  # tokens of a context whose discounts are those of LONG


@dataclass(frozen=True, slots=True)
class Seen:
    """Statistics of the counts for the next token.

    Args:
        log_prob: (N,) log-probability of the target, in nats.
        length: (N,) tokens of the longest context seen before.
        peak: (N,) share of that context's most frequent follower.
        count: (N,) number of all its followers.
    """

    log_prob: Floats
    length: Ints
    peak: Floats
    count: Ints


class NGrams:
    """Counts of the followers of contexts of 0 to ``order`` tokens, and the probabilities they
    give.

    Interpolated absolute discounting with a discount for followers seen once, twice and more often,
    as in modified Kneser-Ney (Chen and Goodman 1999), but with plain counts. For a context c of n
    tokens with count C(c) > 0::

        p_n(w | c) = max(C(c w) - D(C(c w)), 0) / C(c) + (D1 N1 + D2 N2 + D3 N3+)(c) / C(c)
        p_(n-1)(w | c')

    where c' lacks the first token of c and N1, N2, N3+ count the followers of c seen once, twice
    and more often. Order 0 interpolates with another distribution, the base's. The longest context
    that was seen gives the result.

    Args:
        order: tokens of the longest context.
        capacity: the most tokens to count, so that memory stays bounded.

    Raises:
        UserError: an order or capacity below 1.
    """

    def __init__(self, order: int = 5, capacity: int = 20_000_000) -> None:
        if order < 1 or capacity < 1:
            raise UserError(
                f"ngram.order = {order} and ngram.capacity = {capacity} must be at least 1"
            )
        self.order = order
        self.capacity = capacity
        # tokens, contexts, counts of pairs
        self._base: tuple[int, int, npt.NDArray[np.int32]] | None = None
        self._clear()

    def mark_base(self) -> None:
        """Make the present counts the state that :meth:`reset` returns to."""
        pairs = self._pairs["count"][: self._pairs.size].copy()
        self._base = self.tokens, self._contexts.size, pairs

    def reset(self) -> None:
        """Forget everything, or everything added since :meth:`mark_base`."""
        if self._base is None:
            self._clear()
            return
        tokens, contexts, counts = self._base  # rows are only ever appended
        self._fill(tokens, self._contexts.keys[:contexts], self._pairs.keys[: len(counts)], counts)

    def _clear(self) -> None:
        self.tokens = 0
        self._contexts = HashTable("total", "kinds", "once", "twice", "peak")
        self._contexts.insert(np.array([MULTIPLIER]))  # row 0: no token at all
        self._pairs = Followers()
        self._words = np.zeros(0)  # count of each token minus its discount: the followers of row 0

    @property
    def nbytes(self) -> int:
        return self._contexts.nbytes + self._pairs.nbytes + self._words.nbytes

    def context_after(self, tokens: Sequence[int]) -> Ints:
        """Return the context (order,) after some tokens of a text, which may be more or fewer than
        ``order``.
        """
        context = np.full(self.order, PAD)
        nearest = tokens[: -self.order - 1 : -1]
        context[: len(nearest)] = nearest
        return context

    def likeliest(self, context: Ints) -> tuple[int, int, float] | None:
        """Return the most frequent follower of the longest context (order,) seen, the length, and
        its discounted share.

        Among equally frequent tokens it takes the one that first occurred later; None if even the
        nearest is unseen.
        """
        rows = self._contexts.find(context_keys(context[None])[0])
        seen = (rows != ABSENT) & np.r_[True, context != PAD]
        length = int(seen.argmin() if not seen.all() else len(seen)) - 1
        if length < 1:
            return None
        _, tokens, counts = self._pairs.lists(rows[length : length + 1])
        best = len(counts) - 1 - int(counts[::-1].argmax())
        kept = (LONG if length >= LONG_FROM else SHORT).left(counts[best : best + 1])
        return int(tokens[best]), length, float(kept[0] / counts.sum())

    def add(self, contexts: Ints, tokens: Ints) -> None:
        """Count tokens (N,) after their contexts (N, order), the nearest token first, PAD before a
        text begins.

        It ignores tokens beyond ``capacity``.
        """
        room = max(self.capacity - self.tokens, 0)
        contexts, tokens = contexts[:room], tokens[:room]
        self.tokens += len(tokens)
        for begin in range(0, len(tokens), BLOCK):
            self._add(contexts[begin : begin + BLOCK], tokens[begin : begin + BLOCK])

    def add_text(self, tokens: Ints) -> None:
        """Count a text (T,) from its beginning."""
        for begin in range(0, len(tokens), BLOCK):
            first, end = max(begin - self.order, 0), min(begin + BLOCK, len(tokens))
            self.add(contexts_of(tokens[first:end], begin - first, self.order), tokens[begin:end])

    def _add(self, contexts: Ints, tokens: Ints) -> None:
        keys = context_keys(contexts)
        there = np.c_[np.ones(len(tokens), dtype=bool), contexts != PAD]
        # all lengths at once
        keys, tokens = keys[there], np.broadcast_to(tokens[:, None], there.shape)[there]
        unique, number = np.unique(keys, return_inverse=True)
        rows = self._contexts.found_or_inserted(unique)
        self._count(*np.unique(Followers.keys_of(rows[number], tokens), return_counts=True))

    def _count(self, keys: Keys, added: npt.NDArray[np.signedinteger]) -> None:
        """Add to the counts of distinct pairs, and to the statistics of their contexts."""
        rows = self._pairs.found_or_inserted(keys)
        owners = contexts_of_keys(keys)
        table = self._contexts
        before = self._pairs["count"][rows]
        after = before + added.astype(np.int32)
        self._pairs["count"][rows] = after
        np.add.at(table["total"], owners, after - before)
        np.add.at(table["kinds"], owners, (before == 0).astype(np.int32))
        for name, times in (("once", 1), ("twice", 2)):
            np.add.at(table[name], owners, (after == times).astype(np.int32) - (before == times))
        np.maximum.at(table["peak"], owners, after)
        if len(words := tokens_of(keys[owners == 0])):
            self._words = grown(self._words, max(len(self._words), int(words.max()) + 1))
            self._words[words] = SHORT.left(after[owners == 0])

    def score(
        self,
        rows: NGramRows,
        vocabulary: int,
        targets: Ints | None = None,
        lowest: Floats | None = None,
    ) -> Seen:
        """Return the probability of each token as if the rows that it sees had been added; adds
        nothing.

        Args:
            rows: N contexts, and the tokens after them.
            vocabulary: size of the vocabulary; rows with later tokens are not counted yet.
            targets: (N,) the tokens to score; None for those of the rows.
            lowest: (N,) their probabilities below order 0; None for equal ones.
        """
        asked = rows if targets is None else replace(rows, tokens=targets)
        if lowest is None:
            lowest = np.full(len(rows.tokens), 1 / vocabulary)
        return self._interpolated(
            self._seen(asked, rows.within(vocabulary, self.capacity - self.tokens)),
            rows.contexts,
            lowest,
        )

    def distributions(
        self, rows: NGramRows, vocabulary: int, lowest: Floats | None = None
    ) -> Floats:
        """Return log-probabilities (N, V) of every token after each row; see :meth:`score`.

        The part of a shorter context is scaled once for all tokens; only tokens that were seen get
        more than that.
        """
        count = len(rows.tokens)
        added = rows.within(vocabulary, self.capacity - self.tokens)
        if lowest is None:
            lowest = np.full((count, vocabulary), 1 / vocabulary)
        levels = list(self._levels(self._seen(rows, added), rows.contexts))
        # of each length, the longest first: the share that longer contexts leave to it
        scales = [np.ones(count)]
        for level in reversed(levels):
            scales.append(scales[-1] * np.where(level.reached, level.given, 1))
        probabilities = lowest * scales.pop()[:, None]
        stored = self._contexts.find(rows.keys()).reshape(-1, count)
        before = (rows.streams[:, None] == added.streams) & (
            np.arange(count) < rows.visible[:, None]
        )  # (N, N)
        for n, (level, scale) in enumerate(zip(levels, reversed(scales), strict=True)):
            shares = np.where(level.reached, scale / level.total, 0)
            if n:
                before &= rows.contexts[:, None, n - 1] == rows.contexts[:, n - 1]
                self._share_followers(probabilities, stored[n], shares, level.discounts)
            else:
                words = self._words[:vocabulary]
                for row, share in zip(probabilities, shares, strict=True):
                    row[: len(words)] += share * words
            at, which = np.nonzero(before & level.reached[:, None])
            if len(at):
                places, more = np.unique(at * vocabulary + added.tokens[which], return_counts=True)
                at, tokens = np.divmod(places, vocabulary)
                had = self._pairs.counts(stored[n][at], tokens)
                change = level.discounts.left(had + more) - level.discounts.left(had)
                probabilities[at, tokens] += shares[at] * change
        with np.errstate(divide="ignore"):  # of a token that the lowest order gives nothing
            return np.log(probabilities, out=probabilities)

    def per_occurrence(self, rows: NGramRows) -> Floats:
        """Return the part of the probability that each count of a row's token adds, (order + 1, N).

        Row n is for contexts of n tokens; a count after a long context counts after the shorter
        ones as well. The rest of the probability comes from the distribution below order 0. No row
        sees another.
        """
        count = len(rows.tokens)
        weights = np.zeros((self.order + 1, len(rows.tokens)))
        left = np.ones(count)  # share that longer contexts leave to this one
        levels = list(self._levels(self._seen(rows, rows), rows.contexts))
        for n, level in reversed(list(enumerate(levels))):
            once = level.discounts.left(level.wanted) / (level.total * np.maximum(level.wanted, 1))
            weights[n] = np.where(level.reached, left * once, 0)
            left = np.where(level.reached, left * level.given, left)
        return weights

    def _share_followers(
        self, weights: Floats, contexts: Ints, shares: Floats, discounts: Discounts
    ) -> None:
        """Add to (N, V) the probabilities of stored followers of contexts (N,), each with its share
        per count (N,).
        """
        known = np.flatnonzero((contexts != ABSENT) & (shares > 0))
        number, tokens, counts = self._pairs.lists(contexts[known])
        if len(tokens) and tokens.max() >= weights.shape[1]:
            inside = tokens < weights.shape[1]
            number, tokens, counts = number[inside], tokens[inside], counts[inside]
        at = known[number]
        weights[at, tokens] += shares[at] * discounts.left(counts)  # each place is there once

    def _interpolated(self, every: _Counts, contexts: Ints, probability: Floats) -> Seen:
        """Return probabilities from the counts (L N,) of contexts of every length, the shortest
        first.
        """
        count = len(contexts)
        length = np.zeros(count, np.int64)
        peak = np.zeros(count)
        total = np.zeros(count, np.int64)
        for n, level in enumerate(self._levels(every, contexts)):
            interpolated = (
                level.discounts.left(level.wanted) / level.total + level.given * probability
            )
            probability = np.where(level.reached, interpolated, probability)
            length[level.reached] = n
            peak[level.reached] = (level.peak / level.total)[level.reached]
            total[level.reached] = level.total[level.reached]
        with np.errstate(divide="ignore"):  # of a token that the lowest order gives nothing
            return Seen(np.log(probability), length, peak, total)

    def _levels(self, every: _Counts, contexts: Ints) -> Iterator[_Level]:
        """Yield a level for each length of context, the shortest first, while any row has seen that
        length.
        """
        count = len(contexts)
        reached = np.ones(count, dtype=bool)
        for n in range(self.order + 1):
            seen = _Counts(*(column[n * count : (n + 1) * count] for column in every))
            reached = reached & (seen.total > 0)
            if n:
                reached &= contexts[:, n - 1] != PAD
            if not reached.any():
                return
            d = LONG if n >= LONG_FROM else SHORT
            total = np.maximum(seen.total, 1)
            given = (
                d.once * seen.once
                + d.twice * seen.twice
                + d.more * (seen.kinds - seen.once - seen.twice)
            )
            yield _Level(reached, d, total, given / total, seen.peak, seen.wanted)

    def _seen(self, asked: NGramRows, added: NGramRows) -> _Counts:
        """Return the counts (L N,) that each row sees: those of the tables plus those of the
        visible added rows.

        Both kinds of rows have the same contexts.
        """
        lengths = self.order + 1
        size = len(added.tokens)
        keys = asked.keys()
        tokens = np.tile(asked.tokens, lengths)
        streams = np.tile(asked.streams, lengths)
        visible = (asked.visible + size * np.arange(lengths)[:, None]).ravel()
        rows = self._contexts.find(keys)
        stored = {
            name: np.where(rows != ABSENT, self._contexts[name][rows], 0).astype(np.int64)
            for name in _Counts._fields[:5]
        }
        count = self._pairs.counts(rows, tokens)
        if not asked.visible.any():
            return _Counts(**stored, wanted=count)
        # Added rows of the same stream and context, in their order; the numbers of rows run through
        # all lengths.
        new_tokens = np.tile(added.tokens, lengths)
        size *= lengths
        owner = np.unique(
            mixed(
                np.r_[keys, keys]
                ^ mixed(
                    np.r_[np.tile(added.streams, lengths), streams].astype(np.uint64) + np.uint64(1)
                )
            ),
            return_inverse=True,
        )[1]
        new = owner[:size]
        own_rows = owner[size:]
        order = np.argsort(new, kind="stable")
        place = new[order] * (size + 1) + order  # ascending
        low = np.searchsorted(place, own_rows * (size + 1))
        high = np.searchsorted(place, own_rows * (size + 1) + visible)
        # How often each added pair was seen after its row is counted; that decides the change of
        # its context.
        pair = np.unique(Followers.keys_of(owner, np.r_[new_tokens, tokens]), return_inverse=True)[
            1
        ]
        new_pair = pair[:size]
        pair = pair[size:]
        pair_order = np.argsort(new_pair, kind="stable")
        pair_place = new_pair[pair_order] * (size + 1) + pair_order
        after = self._pairs.counts(rows, new_tokens) + 1
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
        # The largest count so far in each context: a running maximum that starts again with each
        # context.
        step = int(after.max()) + 1
        highest = np.maximum.accumulate(new[order] * step + after[order]) - new[order] * step
        largest = np.maximum(stored["peak"], highest[np.maximum(high, 1) - 1])
        stored["peak"] = np.where(high > low, largest, stored["peak"])
        return _Counts(**stored, wanted=count)

    def merge(self, other: NGrams, ids: Ints | None = None) -> int:
        """Add the counts of another NGrams of the same order.

        Args:
            other: the other counts; they stay as they are.
            ids: (V,) ids of its tokens here; None if they are the same.

        Returns:
            Number of its contexts left out: if ids differ, those after tokens that it saw but never
                counted.
        """
        keys, pairs = (table.keys[: table.size] for table in (other._contexts, other._pairs))
        owners = contexts_of_keys(pairs)
        tokens = tokens_of(pairs)
        counts = other._pairs["count"][: len(pairs)]
        length = np.zeros(len(keys), dtype=np.int64)
        if ids is not None:
            spelled, length = other._spelled()
            keys = context_keys(np.where(spelled != PAD, ids[spelled], PAD))[
                np.arange(len(keys)), length
            ]
            tokens = ids[tokens]
        rows = np.full(len(keys), ABSENT)
        rows[length != ABSENT] = self._contexts.found_or_inserted(keys[length != ABSENT])
        there = rows[owners] != ABSENT
        self._count(Followers.keys_of(rows[owners[there]], tokens[there]), counts[there])
        self.tokens += other.tokens
        return int((length == ABSENT).sum())

    def _spelled(self) -> tuple[Ints, Ints]:
        """Return the tokens (C, order) of each context, the nearest first, and their number (C,),
        ABSENT if unknown.

        Each context without its nearest token was followed by that token, so longer contexts follow
        from shorter ones.
        """
        pairs = self._pairs.keys[: self._pairs.size]
        owners, tokens = contexts_of_keys(pairs), tokens_of(pairs)
        spelled = np.full((self._contexts.size, self.order), PAD)
        length = np.full(self._contexts.size, ABSENT)
        length[0] = 0
        for n in range(self.order):
            of_length = length[owners] == n
            longer = np.c_[tokens[of_length], spelled[owners[of_length], :-1]]
            rows = self._contexts.find(context_keys(longer)[:, n + 1])
            spelled[rows[rows != ABSENT]] = longer[rows != ABSENT]
            length[rows[rows != ABSENT]] = n + 1
        return spelled, length

    def state_dict(self) -> dict[str, Array]:
        """Return all counts as arrays to save; the counts of contexts follow from those of
        pairs.
        """
        return {
            "tokens": np.array([self.tokens, self.order]),
            "contexts": self._contexts.keys[: self._contexts.size].view(np.int64),
            "pairs": self._pairs.keys[: self._pairs.size].view(np.int64),
            "counts": self._pairs["count"][: self._pairs.size],
        }

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Load the counts of :meth:`state_dict`; this removes a marked base."""
        self._base = None
        tokens, self.order = (int(number) for number in state["tokens"])
        contexts, pairs = (
            np.ascontiguousarray(state[name]).view(np.uint64) for name in ("contexts", "pairs")
        )
        self._fill(tokens, contexts, pairs, state["counts"].astype(np.int32))

    def _fill(
        self, tokens: int, contexts: Keys, pairs: Keys, counts: npt.NDArray[np.int32]
    ) -> None:
        """Replace all counts by so many tokens, these contexts in their order, and these counts of
        pairs.
        """
        self._clear()
        self.tokens = tokens
        self._contexts.insert(contexts[1:])
        self._count(pairs, counts)


class _Counts(NamedTuple):
    """Counts (N,) of each row's context, and of the wanted token after it."""

    total: Ints
    kinds: Ints
    once: Ints
    twice: Ints
    peak: Ints
    wanted: Ints


class _Level(NamedTuple):
    """Statistics (N,) of the contexts of one length."""

    reached: npt.NDArray[np.bool_]  # whether this context was seen, and all shorter ones
    discounts: Discounts
    total: Ints  # at least 1
    given: Floats  # share of the shorter contexts
    peak: Ints
    wanted: Ints
