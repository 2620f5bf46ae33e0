"""The memory of exact words, against counting in plain dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.memory.ngram_rows import NGramRows, contexts_of
from hebblm.memory.ngrams import LONG, LONG_FROM, SHORT, NGrams


class Plain:
    """The same n-gram, a dictionary of counts for each context."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)

    def add(self, text: list[int], t: int) -> None:
        for n in range(min(self.order, t) + 1):
            self.counts[tuple(text[t - n : t])][text[t]] += 1

    def seen(
        self, text: list[int], t: int, token: int, lowest: float
    ) -> tuple[float, int, float, int]:
        p, length, peak, total = lowest, 0, 0.0, 0
        for n in range(min(self.order, t) + 1):
            followers = self.counts.get(tuple(text[t - n : t]))
            if not followers:
                break
            discounts = LONG if n >= LONG_FROM else SHORT
            taken = {word: discounts[min(count, 3) - 1] for word, count in followers.items()}
            total = followers.total()
            p = (followers[token] - taken.get(token, 0)) / total + sum(taken.values()) / total * p
            length, peak = n, max(followers.values()) / total
        return log(p), length, peak, total


def plainly(
    text: list[int], order: int, vocabulary: int, every: int = 1, capacity: int = 1000
) -> list[tuple[float, int, float, int]]:
    """Score each token of a text, which is counted after every so many tokens, its first ones
    alone.
    """
    plain, found = Plain(order), []
    for t in range(len(text)):
        if t % every == 0:
            for before in range(max(0, t - every), min(t, capacity)):
                plain.add(text, before)
        found.append(plain.seen(text, t, text[t], 1 / vocabulary))
    return found


@settings(max_examples=40, deadline=None)
@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    order=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 17), min_size=60, max_size=60),
    capacity=st.integers(1, 80),
)
def test_runs_of_any_size_are_scored_as_token_by_token(
    text: list[int], order: int, sizes: list[int], capacity: int
) -> None:
    ngrams, begin, rows, tokens = NGrams(order, capacity), 0, [], np.array(text)
    for size in sizes:
        end = min(begin + size, len(text))
        if end == begin:
            break
        contexts = contexts_of(tokens[:end], begin, order)
        seen = ngrams.score(NGramRows.of(contexts, tokens[begin:end]), 9)
        rows += zip(seen.log_prob, seen.length, seen.peak, seen.count, strict=True)
        ngrams.add(contexts, tokens[begin:end])
        kept, ngrams = ngrams.state_dict(), NGrams(order, capacity)
        ngrams.load_state_dict(kept)
        begin = end
    assert np.allclose(rows, plainly(text, order, 9, capacity=capacity), rtol=0, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 2), min_size=20, max_size=20), min_size=2, max_size=3)
)
def test_streams_side_by_side_see_each_other_once_they_are_added(texts: list[list[int]]) -> None:
    order, ngrams, alone = 3, NGrams(3), [NGrams(3) for _ in texts]
    contexts = [contexts_of(np.array(text), 0, order) for text in texts]
    rows = [(t, stream) for t in range(20) for stream in range(len(texts))]  # interleaved
    together = NGramRows(
        np.stack([contexts[stream][t] for t, stream in rows]),
        np.array([texts[stream][t] for t, stream in rows]),
        np.array([stream for _, stream in rows]),
        np.arange(len(rows)),
    )
    seen = ngrams.score(together, 9)
    for stream, one in enumerate(alone):
        own = one.score(NGramRows.of(contexts[stream], np.array(texts[stream])), 9).log_prob
        assert np.allclose(seen.log_prob[stream :: len(texts)], own, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    text=st.lists(st.integers(0, 3), min_size=2, max_size=80),
    order=st.integers(1, 5),
    size=st.integers(1, 17),
    every=st.integers(1, 5),
)
def test_distributions_are_those_of_plain_dictionaries(
    text: list[int], order: int, size: int, every: int
) -> None:
    """Runs are predicted token by token, of intervals; reset in between returns to the base."""
    ngrams, plain, tokens, base = NGrams(order), Plain(order), np.array(text), len(text) // 2
    lowest = np.random.default_rng(len(text)).dirichlet(np.ones(9), len(text))
    ngrams.add_text(tokens[:base])
    ngrams.mark_base()
    ngrams.add_text(tokens[::-1])
    ngrams.reset()
    counted = 0
    for begin in range(base, len(text), size):
        end = min(begin + size, len(text))
        contexts = contexts_of(tokens[:end], begin, order)
        visible = np.arange(end - begin) // every * every
        rows = replace(NGramRows.of(contexts, tokens[begin:end]), visible=visible)
        found = ngrams.distributions(rows, 9, lowest[begin:end])
        for t in range(begin, end):
            while counted < begin + visible[t - begin]:
                plain.add(text, counted)
                counted += 1
            expected = [plain.seen(text, t, token, lowest[t, token])[0] for token in range(9)]
            assert np.allclose(found[t - begin], expected, rtol=0, atol=1e-12)
        ngrams.add(contexts, tokens[begin:end])


def test_distributions_of_streams_are_what_their_tokens_are_scored() -> None:
    text, order = np.random.default_rng(3).integers(0, 4, 40), 3
    ngrams = NGrams(order)
    ngrams.add_text(text[:20])
    contexts, tokens = contexts_of(text, 20, order), text[20:]
    streams, visible = np.arange(20) % 2, np.arange(20) // 4 * 4
    rows = NGramRows(contexts, tokens, streams, visible)
    whole = ngrams.distributions(rows, 6)
    assert np.allclose(np.exp(whole).sum(1), 1, atol=1e-12)
    scored = ngrams.score(rows, 6).log_prob
    assert np.allclose(whole[np.arange(20), tokens], scored, atol=1e-12)


def test_rows_that_are_not_observed_yet_count_nothing() -> None:
    text = np.random.default_rng(0).integers(0, 3, 60)
    ngrams = NGrams(2)
    visible = np.arange(60) // 10 * 10
    seen = ngrams.score(replace(NGramRows.of(contexts_of(text, 0, 2), text), visible=visible), 9)
    expected = plainly(text.tolist(), 2, 9, every=10)
    assert np.allclose(seen.log_prob, [row[0] for row in expected], atol=1e-12)


def test_a_long_text_is_added_at_once_as_in_parts() -> None:
    text = np.random.default_rng(2).integers(0, 50, 100_000)  # longer than a block
    whole, parts = NGrams(2), NGrams(2)
    whole.add_text(text)
    for begin in range(0, len(text), 7_000):
        end = min(begin + 7_000, len(text))
        parts.add(contexts_of(text[:end], begin, 2), text[begin:end])
    contexts = contexts_of(text[:2000], 0, 2)
    first, second = (
        ngrams.score(NGramRows.of(contexts, text[:2000]), 60).log_prob for ngrams in (whole, parts)
    )
    assert np.array_equal(first, second)


def test_nothing_is_added_beyond_the_capacity() -> None:
    ngrams, text = NGrams(2, capacity=10), np.arange(30)
    ngrams.add_text(text)
    size = ngrams.nbytes
    ngrams.add_text(text + 100)
    assert (ngrams.tokens, ngrams.nbytes) == (10, size)
    with pytest.raises(UserError, match=r"ngram.capacity = 0 must be at least 1"):
        NGrams(2, 0)


def test_tokens_beyond_the_vocabulary_count_once_they_are_added() -> None:
    ngrams, text = NGrams(2), np.array([0, 1, 7, 0, 1])
    rows = NGramRows.of(contexts_of(text, 0, 2), text)
    assert np.allclose(np.exp(ngrams.distributions(rows, 3)).sum(1), 1)
    ngrams.add(rows.contexts, text)
    assert float(np.exp(ngrams.score(rows, 8).log_prob[2])) > 0.3


def test_reset_returns_to_the_marked_base() -> None:
    ngrams, text = NGrams(2), np.array([0, 1, 2, 0, 1, 2])
    ngrams.add_text(text)
    ngrams.mark_base()
    before = {name: column.copy() for name, column in ngrams.state_dict().items()}
    ngrams.add_text(text[::-1])
    ngrams.reset()
    assert all(np.array_equal(column, before[name]) for name, column in ngrams.state_dict().items())
