from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.report.buckets import (
    OCCURRENCES,
    occurrence_masks,
    occurrence_report,
    occurrences_so_far,
    recombine,
)


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
        mine = [loss for loss, s, new in zip(nll, seen, oov, strict=True) if new and name_of(s) == bucket.bucket]
        assert bucket.tokens == len(mine)
        assert bucket.nll == (pytest.approx(float(np.mean(mine))) if mine else None)


def test_masks_part_the_new_words_and_only_them() -> None:
    ids = np.asarray([5, 5, 1, 5, 5, 1, 5, 5, 5, 5, 5, 6])
    oov = ids > 3
    masks = occurrence_masks(occurrences_so_far(ids), oov)
    assert np.array_equal(np.sum(masks, axis=0), oov.astype(int))
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [[0, 11], [1], [3], [4, 6, 7, 8], [9, 10]]


def test_an_infinite_loss_stays_in_its_occurrence() -> None:
    report = occurrence_report(np.asarray([np.inf, 1.0]), np.asarray([0, 1]), np.asarray([True, True]))
    assert [bucket.nll for bucket in report] == [np.inf, 1.0, None, None, None]
