"""Predicting a block of the stream at once gives what predicting it token by token gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, FaissMemory, FlatMemory
from hebblm.online import layout as layouts

from ..support import toy

BLOCK = 24
MEMORIES = toy.MEMORIES | {
    "faiss": lambda dtype: FaissMemory(toy.DIM, "PQ4x4fs", dtype=dtype, rescore=10_000)
}
WINDOWED = toy.SETTINGS.replaced(replace(toy.SETTINGS[CacheConfig], window=17))
SEARCHED = [method for method in STATIC_METHODS if method not in ("lstm", "cache")]


def run(  # noqa: PLR0913 - each names one case of the contract
    memory: AnyMemory,
    every: int,
    at_once: bool,
    config: MethodSettings,
    *,
    k: int = 9,
    stored: int = 0,
    write: bool = True,
    dtype: torch.dtype = torch.float64,
    ids: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Score a stream that repeats itself, so that states and labels recur, by every method."""
    stream = toy.stream_of(
        np.concatenate([toy.tokens(1, 30), toy.tokens(1, 30)]) if ids is None else ids
    )
    base = toy.base_of(toy.tiny_model().to(dtype))
    if stored:
        keys = toy.randn(3, stored, toy.DIM, dtype=dtype)
        keys[1::3] = keys[0]
        memory.add(keys, torch.arange(stored) % toy.WORDS)
        memory.mark_base()
    context = toy.context_of(base, memory, stream, k=k, window=17)
    rules = {method: METHODS[method].predictor(config) for method in STATIC_METHODS}
    return evaluate(
        base, [context], rules, stream, UnionVocabulary(), Schedule(every, write=write,
        read_ahead=at_once)
    ).nll  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK", BLOCK)
    monkeypatch.setattr(layouts, "READ_AHEAD", 2 * BLOCK)


@pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())
@pytest.mark.parametrize(
    ("every", "learned", "k", "stored"),
    [(1, True, 4, 20), (7, False, 4, 20), (7, True, 50, 0)],
    ids=["few-neighbours", "few-at-fixed-shares", "more-neighbours-than-there-are"],
)
def test_blocks_equal_one_by_one(  # type: ignore[no-untyped-def]
    make, every: int, learned: bool, k: int, stored: int
) -> None:
    settings = toy.LEARNED if learned else toy.SETTINGS
    config = toy.exact(settings.replaced(replace(settings[CacheConfig], window=17)))
    slow = run(make(torch.float64), every, False, config, k=k, stored=stored)
    fast = run(make(torch.float64), every, True, config, k=k, stored=stored)
    for method in STATIC_METHODS:
        np.testing.assert_allclose(fast[method], slow[method], rtol=1e-6, atol=1e-6, err_msg=method)


def test_the_update_interval_matters() -> None:
    """Else nothing above would mean much."""
    config = toy.exact(WINDOWED)
    by = {
        every: run(FlatMemory(toy.DIM, dtype=torch.float64), every, True, config)
        for every in (1, 3, 7)
    }
    for method in SEARCHED:
        for one, other in ((1, 3), (3, 7)):
            assert np.abs(by[one][method] - by[other][method]).max() > 1e-2, method


@pytest.mark.parametrize("make", [MEMORIES["flat"], MEMORIES["ring"]], ids=["flat", "ring"])
def test_counts_of_what_the_memory_holds_follow_the_block(make) -> None:  # type: ignore[no-untyped-def]
    config = toy.exact(
        WINDOWED.replaced(replace(WINDOWED[HebbConfig], counts="memory", classes="all"))
    )
    slow, fast = (
        run(make(torch.float64), 1, at_once, config, stored=20) for at_once in (False, True)
    )
    observed = run(
        make(torch.float64),
        1,
        True,
        toy.exact(WINDOWED.replaced(replace(WINDOWED[HebbConfig], classes="all"))),
        stored=20,
    )
    for method in STATIC_METHODS:
        np.testing.assert_allclose(fast[method], slow[method], rtol=1e-6, atol=1e-6, err_msg=method)
    assert np.abs(fast["hebb"] - observed["hebb"]).max() > 1e-3


@pytest.mark.parametrize("every", [1, 7])
def test_a_memory_that_is_not_written_to_is_served_whole(every: int) -> None:
    config = toy.exact(WINDOWED)
    slow, fast = (
        run(
            FaissMemory(toy.DIM, "PQ4x4fs", dtype=torch.float64, rescore=10_000),
            every,
            at_once,
            config,
            stored=40,
            write=False,
        )
        for at_once in (False, True)
    )
    for method in STATIC_METHODS:
        np.testing.assert_allclose(fast[method], slow[method], rtol=1e-6, atol=1e-6, err_msg=method)


@toy.every_memory
def test_single_precision_and_the_fast_form_agree_to_1e_5(make) -> None:  # type: ignore[no-untyped-def]
    slow, fast = (
        run(make(torch.float32), 1, at_once, WINDOWED, stored=20, dtype=torch.float32)
        for at_once in (False, True)
    )
    for method in STATIC_METHODS:
        # a rate that diverges makes rounding grow as well
        rtol = 1e-4 if method == "mbpa-absolute" else 1e-5
        np.testing.assert_allclose(fast[method], slow[method], rtol=rtol, atol=1e-5, err_msg=method)


@toy.every_memory
@pytest.mark.parametrize("every", [1, 7])
def test_later_tokens_of_the_same_block_leave_earlier_scores_bit_identical(
    make, every: int
) -> None:  # type: ignore[no-untyped-def]
    ids = toy.tokens(5, 60)
    before = run(make(torch.float32), every, True, WINDOWED, dtype=torch.float32, ids=ids)
    for change in (10, 31, 48):
        other = ids.copy()
        other[change:] = toy.tokens(6, 60)[change:]
        other[change] = (ids[change] + 1) % toy.WORDS
        after = run(make(torch.float32), every, True, WINDOWED, dtype=torch.float32, ids=other)
        for method in STATIC_METHODS:
            assert np.array_equal(before[method][:change], after[method][:change]), (method, change)
            assert before[method][change] != after[method][change], method
