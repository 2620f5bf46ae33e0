from __future__ import annotations

import pytest

from recipes.study.cost.evaluation_floor import methods_work
from recipes.study.cost.work import (
    IndexShape,
    Work,
    base_work,
    cache_work,
    descent_work,
    exact_work,
    hebbian_work,
    index_work,
    network_work,
    reading_work,
)


def test_work_adds_up() -> None:
    both = Work(1, 2, 3, 4) + Work(10, 20, 30, 40)
    assert both == Work(11, 22, 33, 44)
    assert both.bytes == 33


def test_the_bases_distribution() -> None:
    # 7 rows of 3 numbers and a bias, read once for 2 queries; 7 logits of 4 bytes
    found = base_work(dim=3, classes=7, batch=2)
    assert found == Work(streamed=7 * 4 * 4 / 2 + 7 * 4, operations=2 * 7 * 4, exponentials=7)


def test_a_single_step_needs_no_products_of_the_keys_with_each_other() -> None:
    found = descent_work(dim=3, classes=50, k=5, steps=1, active=10, rank=2)
    assert found.streamed == 5 * (3 * 4 + 8 + 8) + 50 * 4
    assert found.gathered == 10 * 4 * 4
    assert found.operations == 2 * 5 * 3 + 2 * 5 * 3 * 10 + 2 * 5 * 10 + 50
    assert found.exponentials == 5 * 11


@pytest.mark.parametrize(("rank", "mixing"), [(1, 2 * 40 * 1 * (3 + 2 * 2 * 10)), (1000, 2 * 40 * 40 * (3 + 2 * 10))])
def test_steps_go_through_whichever_form_of_m_is_less(rank: int, mixing: int) -> None:
    one, three = (descent_work(dim=3, classes=50, k=40, steps=s, active=10, rank=rank) for s in (1, 3))
    assert three.operations - one.operations == mixing + 2 * (2 * 40 * 10)
    assert three.exponentials == 3 * one.exponentials
    assert three.bytes == one.bytes


def test_no_more_classes_are_followed_than_there_are() -> None:
    few = descent_work(dim=3, classes=6, k=5, steps=2, active=159, rank=2)
    assert few == descent_work(dim=3, classes=6, k=5, steps=2, active=6, rank=2)


def test_what_hebb_adds_does_not_know_the_vocabulary() -> None:
    assert hebbian_work(k=8) == Work(8 * 16, 8 * 20, 8 * 13, 8)


def test_exact_search_reads_every_key_once_a_mini_batch() -> None:
    found = exact_work(entries=1000, dim=4, k=3, batch=10)
    assert found.streamed == 1000 * 16 / 10 + 3 * (16 + 16)
    assert found.gathered == 3 * 16
    assert found.operations == 2 * 4000
    half = exact_work(entries=1000, dim=4, k=3, batch=10, stored=2)
    assert half.gathered == found.gathered / 2


def test_an_index_reads_codes_and_gathers_candidates() -> None:
    shape = IndexShape(lists=16, codes=8, code_bytes=4.0, compared=100.0, read=600.0, candidates=15)
    found = index_work(shape, dim=4, k=3, batch=10)
    assert found.streamed == (16 * 16 + 600 * 4) / 10 + 3 * (16 + 16)
    assert found.gathered == 15 * 16
    assert found.operations == 2 * 4 * (16 + 16) + 2 * 100 * 8 / 4 + 3 * 15 * 4
    assert index_work(shape, dim=4, k=3, batch=10, stored=2).gathered == found.gathered / 2


def test_reading_streams_the_recurrent_matrices_for_every_token() -> None:
    layers = [(3, 5), (5, 3)]
    recurrent, others = 4 * (25 + 9), 4 * (5 * 5 + 3 * 7)
    found = reading_work(layers, ahead=4)
    assert found.streamed == 4 * (recurrent + others / 4)
    assert found.operations == 2 * (recurrent + others)
    assert found.exponentials == 5 * 8


def test_cache_and_network() -> None:
    assert cache_work(window=20, dim=3, batch=10) == Work(20 * 3 * 4 / 10, operations=2 * 20 * 3, exponentials=20)
    one = network_work(pixels=7, hidden=5, classes=2, k=3, steps=1)
    assert one.operations == 2 * 3 * 4 * 7 + 6 * 3 * 5 * 2 + 2 * 3 * 4 * 5
    assert one.streamed == (4 * 12 + 2 * 5) * 4
    three = network_work(pixels=7, hidden=5, classes=2, k=3, steps=3)
    assert three.operations - one.operations == 2 * (6 * 3 * 5 * 2 + 2 * 3 * 4 * 5)


SIZES = {"dim": 4, "classes": 30, "k": 6, "steps": 2, "batch": 10, "window": 20}


def test_methods_share_what_they_have_in_common() -> None:
    def work(*names: str) -> Work:
        return methods_work(names, **SIZES)

    assert work("lstm") == Work()
    assert work("mbpa", "mixture", "mixture+mbpa") == work("mixture+mbpa")
    assert work("hebb") == work("mbpa", "hebb") == work("mbpa") + hebbian_work(k=6)
    assert work("hebb-v2") == work("hebb")
    assert work("cache", "knn") == cache_work(window=20, dim=4, batch=10) + Work(exponentials=6)
