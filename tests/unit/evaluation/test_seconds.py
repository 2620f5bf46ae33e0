"""Every method is charged what it would take alone, in whatever company and order it is run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.predictor import Predictor, Requirements
from hebblm.adapt.work import Stopwatch, name_of
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory

from ...support import toy


class Ticks(TorchDispatchMode):
    """A clock that goes on by a second with every operation of torch, and when it is told."""

    now = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.now += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    with Ticks() as clock:
        monkeypatch.setattr(time, "process_time", lambda: clock.now)
        yield clock


def scores_of(predictors: dict[str, Predictor], *, tokens: int = 60) -> EvaluationScores:
    stream = toy.stream_of(toy.tokens(7, tokens))
    base = toy.base_of(toy.tiny_model())
    context = toy.context_of(base, FlatMemory(toy.DIM), stream)
    retrieve = any(predictor.requirements.retrieval for predictor in predictors.values())
    return evaluate(
        base, [context], predictors, stream, UnionVocabulary(), Schedule(20, write=retrieve)
    )


@dataclass(frozen=True)
class Sharing:
    """Takes a second of its own, and two pieces of ten and a hundred seconds that others may have
    computed.
    """

    clock: Any
    over: Any = None

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def ten() -> None:
            batch.shared("hundred", lambda: self.wait(100))
            self.wait(10)

        batch.shared("ten", ten)
        batch.shared("hundred", lambda: self.wait(100))
        self.wait(1)
        return targets * 0.0 if self.over is None else self.over.score(batch, targets)

    requirements = Requirements()

    def wait(self, seconds: float) -> None:
        self.clock.now += 1000 * seconds


def test_who_shares_work_is_charged_alike_in_either_order(ticks: Ticks) -> None:
    predictors: dict[str, Any] = {"first": Sharing(ticks), "second": Sharing(ticks)}
    forth = scores_of(predictors, tokens=20)
    back = scores_of(dict(reversed(predictors.items())), tokens=20)
    for scores in (forth, back):
        waited = {name: scores.seconds[name] // 1000 for name in predictors}
        assert waited == {"first": 111, "second": 111}
        assert {name: seconds // 1000 for name, seconds in scores.own_seconds.items()} == {
            "first": 1,
            "second": 1,
        }
        assert {name: seconds // 1000 for name, seconds in scores.shared_seconds.items()} == {
            "hundred": 100,
            "ten": 10,
        }
    assert forth.seconds == back.seconds


@pytest.mark.parametrize("name", STATIC_METHODS)
def test_a_method_in_company_is_charged_what_it_takes_alone(name: str, ticks: Ticks) -> None:
    predictors = {other: METHODS[other].predictor(toy.SETTINGS) for other in STATIC_METHODS}
    alone = scores_of({name: predictors[name]}).seconds[name]
    others = {other: predictor for other, predictor in predictors.items() if other != name}
    assert scores_of({name: predictors[name], **others}).seconds[name] == alone
    assert scores_of({**others, name: predictors[name]}).seconds[name] == alone


@pytest.mark.parametrize("name", ["hebb", "mixture+hebb", "mixture+mbpa"])
def test_what_stands_on_mbpa_pays_for_it(name: str, ticks: Ticks) -> None:
    scores = scores_of({each: METHODS[each].predictor(toy.SETTINGS) for each in ("mbpa", name)})
    assert (
        scores.seconds[name]
        > scores.seconds["mbpa"]
        > scores.base_seconds + scores.retrieval_seconds
    )


def test_only_who_asks_for_neighbours_pays_for_retrieval(ticks: Ticks) -> None:
    predictors = {name: METHODS[name].predictor(toy.SETTINGS) for name in STATIC_METHODS}
    scores = scores_of(predictors)
    spared = {
        name
        for name in predictors
        if scores.seconds[name] < scores.base_seconds + scores.retrieval_seconds
    }
    assert spared == {"lstm", "cache", "ngram"}
    parts = [*scores.own_seconds.values(), *scores.shared_seconds.values()]
    assert sum(parts) + scores.base_seconds + scores.retrieval_seconds <= ticks.now


def test_work_within_work_counts_once() -> None:
    readings = iter([0.0, 1.0, 4.0, 10.0])
    watch = Stopwatch(lambda: next(readings))
    with watch.time("outer") as outer:
        with watch.time("inner") as inner:
            pass
        watch.use(inner)
    assert (outer.seconds, inner.seconds) == (7.0, 3.0)
    assert outer.pieces() == {inner}


def test_pieces_have_plain_names() -> None:
    mbpa, mixture = toy.SETTINGS[MbpaConfig], METHODS["mixture"].predictor(toy.SETTINGS)
    names = [
        name_of(key)
        for key in ("products", ("window", 500), mbpa, ("adapted", mbpa), (mixture, "losses", 7))
    ]
    assert names == ["products", "window", "mbpa", "adapted mbpa", "mixed losses"]
