from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.report.result.parts import (  # fmt: skip
    DEFAULT_EDGES,
    OCCURRENCES,
    bucket_labels,
    frequency_report,
    occurrence_masks,
    occurrence_report,
    occurrences_so_far,
    recombine,
)

tokens = st.lists(st.tuples(st.floats(0, 60), st.integers(0, 2000)), min_size=1, max_size=400)
edge_lists = st.lists(st.integers(1, 3000), min_size=1, max_size=6, unique=True).map(sorted)


def test_a_large_float32_stream_recombines_to_its_float64_mean() -> None:
    rng = np.random.default_rng(0)
    nll = rng.gamma(2.0, 2.5, 250_000).astype(np.float32)
    counts = rng.integers(0, 3000, 250_000)
    total = recombine(frequency_report(nll, counts))
    assert total is not None
    assert abs(total - float(nll.mean(dtype=np.float64))) < 1e-12


@settings(deadline=None)
@given(tokens, edge_lists)
def test_against_a_plain_loop(pairs: list[tuple[float, int]], edges: list[int]) -> None:
    buckets = frequency_report(
        np.asarray([pair[0] for pair in pairs]), np.asarray([pair[1] for pair in pairs]), edges
    )
    total = math.fsum(nll for nll, _ in pairs) / len(pairs)
    assert recombine(buckets) == pytest.approx(total, rel=1e-13, abs=1e-12)
    bounds = [0, *edges, math.inf]  # an edge belongs to the range above it
    for bucket, low, high in zip(buckets, bounds, bounds[1:], strict=False):
        losses = [nll for nll, count in pairs if low <= count < high]
        assert bucket.tokens == len(losses)
        if losses:
            assert bucket.nll == pytest.approx(
                math.fsum(losses) / len(losses), rel=1e-12, abs=1e-12
            )
            assert bucket.perplexity == math.exp(bucket.nll or 0.0)
        else:
            assert bucket.nll is None
            assert bucket.perplexity is None


def test_labels_of_other_edges() -> None:
    assert bucket_labels(DEFAULT_EDGES) == ["<50", "50-100", "100-500", ">500"]
    assert bucket_labels([7]) == ["<7", ">7"]


def test_an_infinite_loss_stays_in_its_bucket() -> None:
    buckets = frequency_report(np.asarray([math.inf, 2.0]), np.asarray([0, 600]))
    assert buckets[0].perplexity == math.inf
    assert buckets[-1].nll == 2.0
    assert recombine(buckets) == math.inf
    assert recombine(frequency_report(np.zeros(0), np.zeros(0, dtype=np.int64))) is None


@pytest.mark.parametrize("edges", [[], [0, 50], [50, 50], [100, 50], [1.5], [True, 50]])
def test_bad_edges_are_refused(edges: list[int]) -> None:
    with pytest.raises(UserError, match="edges"):
        frequency_report(np.ones(2), np.ones(2, dtype=np.int64), edges)


def test_bad_data_is_refused() -> None:
    with pytest.raises(UserError, match="nan"):
        frequency_report(np.asarray([math.nan]), np.asarray([1]))
    with pytest.raises(UserError, match="negative"):
        frequency_report(np.ones(1), np.asarray([-1]))
    with pytest.raises(UserError, match="equal"):
        frequency_report(np.ones(2), np.asarray([1]))


def name_of(seen: int) -> str:
    return ["1st", "2nd", "3rd", "4th-7th", "4th-7th", "4th-7th", "4th-7th", "8th+"][min(seen, 7)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), max_size=80))
def test_occurrences_are_those_of_a_counter_that_reads_in_order(ids: list[int]) -> None:
    so_far: Counter[int] = Counter()
    expected = []
    for token in ids:
        expected.append(so_far[token])
        so_far[token] += 1
    assert occurrences_so_far(np.asarray(ids, dtype=np.int64)).tolist() == expected
    words = np.asarray([f"w{token}" for token in ids], dtype=np.str_)
    assert occurrences_so_far(words).tolist() == expected


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 200))
def test_occurrences_recombine_to_the_loss_on_new_words(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.geometric(0.2, count), 20)
    nll, oov = rng.exponential(6, count), ids > 3
    seen = occurrences_so_far(ids)
    report = occurrence_report(nll, seen, oov)
    if not oov.any():
        assert report == []
        return
    assert [bucket.bucket for bucket in report] == list(OCCURRENCES)
    assert sum(bucket.tokens for bucket in report) == int(oov.sum())
    assert recombine(report) == pytest.approx(float(nll[oov].mean()), rel=1e-12)
    for bucket in report:
        mine = [
            loss
            for loss, s, new in zip(nll, seen, oov, strict=True)
            if new and name_of(s) == bucket.bucket
        ]
        assert bucket.tokens == len(mine)
        assert bucket.nll == (pytest.approx(float(np.mean(mine))) if mine else None)


def test_masks_part_the_new_words_and_only_them() -> None:
    ids = np.asarray([5, 5, 1, 5, 5, 1, 5, 5, 5, 5, 5, 6])
    oov = ids > 3
    masks = occurrence_masks(occurrences_so_far(ids), oov)
    assert np.array_equal(np.sum(masks, axis=0), oov.astype(int))
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [
        [0, 11],
        [1],
        [3],
        [4, 6, 7, 8],
        [9, 10],
    ]


def test_an_infinite_loss_stays_in_its_occurrence() -> None:
    report = occurrence_report(
        np.asarray([np.inf, 1.0]), np.asarray([0, 1]), np.asarray([True, True])
    )
    assert [bucket.nll for bucket in report] == [np.inf, 1.0, None, None, None]
