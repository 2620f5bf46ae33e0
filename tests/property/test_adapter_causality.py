"""No method's score depends on what comes after it, or on how much is read at once."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory
from hebblm.online.layout import READ_AHEAD

from ..support import toy
from ..support.adapters import MEMORIES, RULES, WIDE, MemoryMaker, every_memory


def evaluated(
    ids: np.ndarray, make: MemoryMaker, *, lr: float = 0.0, config: MethodSettings = toy.SETTINGS
) -> EvaluationScores:
    """Score a stream by every method, with a vocabulary so wide that the fast form leaves classes
    out.
    """
    ids = np.where(ids < toy.SOURCE, ids, ids + WIDE - toy.SOURCE)
    stream = toy.stream_of(ids, words=WIDE + toy.NOVEL, source=WIDE)
    base = toy.base_of(toy.tiny_model(vocabulary=WIDE), lr=lr)
    context = toy.context_of(base, make(torch.float32), stream)
    rules = {method: METHODS[method].predictor(config) for method in RULES}
    return evaluate(
        base,
        [context],
        rules,
        stream,
        UnionVocabulary(),
        Schedule(20, read_ahead=lr == 0),
        Hooks(check=True),
    )


@every_memory
@pytest.mark.parametrize(
    ("kind", "lr"), [("calm", 0.5), ("diverging", 0.0), ("learned", 0.0), ("learned", 0.5)]
)
def test_later_tokens_leave_earlier_scores_bit_identical(
    make: MemoryMaker, kind: str, lr: float
) -> None:
    """Within an interval too: a score depends on nothing that comes after it; the base is fixed or
    moves.
    """
    hot, config = kind == "diverging", toy.LEARNED if kind == "learned" else toy.SETTINGS
    if hot:
        config = config.replaced(
            MbpaAbsoluteConfig(lr=30.0), replace(config[MbpaConfig], lr_units="guarded", lr=30.0)
        )
    first = toy.tokens(1, 120)
    before = evaluated(first, make, lr=lr, config=config)
    for change in (33, 100):
        second = first.copy()
        second[change:] = toy.tokens(2, 120)[change:]
        second[change] = (first[change] + 1) % toy.WORDS
        after = evaluated(second, make, lr=lr, config=config)
        for method in RULES:
            assert np.array_equal(before.nll[method][:change], after.nll[method][:change]), (
                method,
                change,
            )
            assert before.nll[method][change] != after.nll[method][change], method
        assert (before.retried["mbpa"] > 0) >= hot


def test_reading_ahead_and_the_length_of_the_stream_change_nothing() -> None:
    ids = toy.tokens(3, 2 * READ_AHEAD + 37)
    stream = toy.stream_of(ids)
    rules = {method: METHODS[method].predictor(toy.SETTINGS) for method in RULES}

    def run(stream_length: int, ahead: bool) -> dict[str, np.ndarray]:
        part = toy.stream_of(ids[:stream_length])
        base = toy.base_of(toy.tiny_model())
        context = toy.context_of(base, FlatMemory(toy.DIM), part)
        return evaluate(
            base, [context], rules, part, UnionVocabulary(), Schedule(30, read_ahead=ahead)
        ).nll

    ahead, step, short = run(len(stream), True), run(len(stream), False), run(150, True)
    for method in RULES:
        np.testing.assert_allclose(ahead[method], step[method], atol=1e-5)
        np.testing.assert_allclose(ahead[method][:150], short[method], atol=1e-5)


def test_methods_differ_from_each_other() -> None:
    """Else nothing above would mean much."""
    nll = evaluated(toy.tokens(4, 300), MEMORIES["flat"]).nll
    for first, second in itertools.combinations(RULES, 2):
        assert np.abs(nll[first] - nll[second]).max() > 1e-6, (first, second)
