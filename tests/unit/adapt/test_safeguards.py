from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods import mbpa as mbpa_module
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa, MbpaAbsoluteConfig, MbpaConfig, Safeguards
from hebblm.adapt.methods.memory_mixture import Mixed
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.scores import EvaluationScores
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ...support import toy

CLASSES = 1100  # more than twice what the fast form follows
# a relative rate that climbs
FAR = MbpaConfig(optimizer="sgd", lr=300.0, steps=4, l2_to_base=0.0, weight=1.0)


def observed(fixed: bool = True, entries: int = 40) -> Context:
    head = OutputHead(
        toy.randn(1, CLASSES, toy.DIM, dtype=torch.float64),
        toy.randn(2, CLASSES, dtype=torch.float64),
    )
    memory = FlatMemory(toy.DIM, dtype=torch.float64)
    counts = torch.ones(CLASSES, dtype=torch.int64)
    context = Context(head, memory, k=9, train_counts=counts, fixed=fixed)
    labels = torch.arange(entries) * 7 % CLASSES
    toy.observe(context, toy.randn(3, entries, toy.DIM, dtype=torch.float64), labels)
    return context


def queries(count: int = 5) -> torch.Tensor:
    return toy.randn(9, count, toy.DIM, dtype=torch.float64)


@pytest.mark.parametrize("name", ["mbpa", "hebb", "hebb-v2", "mixture+mbpa", "mixture+hebb"])
def test_every_method_with_gradient_steps_counts_queries_that_rose_and_measures_errors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mbpa_module, "MEASURED", 1)  # every query
    for config, rises in ((FAR, True), (replace(FAR, lr=1.0), False)):
        found = Safeguards.of(
            METHODS[name].predictor(toy.SETTINGS.replaced(config)), EvalBatch(queries(), observed())
        )
        assert found.loss_increased.any() == rises
        assert not found.retried.any()
        assert len(found.errors) == 5
        assert (found.errors > 0).all()


def test_only_the_guarded_rate_runs_a_query_again() -> None:
    absolute, batch = (
        MbpaAbsoluteConfig(lr=1e4, steps=4).over(MbpaConfig()),
        EvalBatch(queries(), observed()),
    )
    plain, guarded = (
        Safeguards.of(Mbpa(replace(absolute, lr_units=rate)), batch)
        for rate in ("absolute", "guarded")
    )
    assert guarded.loss_increased.any()
    assert torch.equal(guarded.retried, guarded.loss_increased)
    assert plain.loss_increased.any()
    assert not plain.retried.any()
    assert not Safeguards.of(
        Mbpa(replace(absolute, lr_units="guarded", lr=1e-4)), batch
    ).loss_increased.any()


def test_what_has_no_gradient_steps_counts_nothing() -> None:
    batch = EvalBatch(queries(), observed())
    for name in ("lstm", "knn", "mixture", "hebb-v1"):
        found = Safeguards.of(METHODS[name].predictor(MethodSettings(FAR)), batch)
        assert not (found.retried | found.loss_increased).any()
        assert len(found.errors) == 0


def test_either_part_of_a_combination_counts() -> None:
    batch = EvalBatch(queries(), observed())
    alone, joined = Mbpa(FAR), Mixed((Unadapted(), Mbpa(FAR)), 0.5)
    assert Safeguards.of(alone, batch).loss_increased.any()
    assert torch.equal(
        Safeguards.of(joined, batch).loss_increased, Safeguards.of(alone, batch).loss_increased
    )


def test_counts_add_up_over_mini_batches() -> None:
    scores = EvaluationScores({})
    some, none, errors = (
        torch.tensor([True, False, True]),
        torch.zeros(3, dtype=torch.bool),
        torch.ones(2),
    )
    scores.count("mbpa", Safeguards(some, none, errors))
    scores.count("mbpa", Safeguards(some, ~some, 2 * errors[:1]))
    assert (scores.loss_increased, scores.retried) == ({"mbpa": 4}, {"mbpa": 1})
    assert scores.errors == {"mbpa": [1.0, 1.0, 2.0]}


def test_one_query_of_every_thousand_is_measured_at_a_random_place() -> None:
    places = [place for place in range(20_000) if mbpa_module._measured(place)]
    assert [place // 1000 for place in places] == list(range(20))
    assert len({place % 1000 for place in places}) > 10


def test_which_queries_are_measured_depends_on_their_place_in_the_stream_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mbpa_module, "MEASURED", 4)
    hidden, config = queries(12), MbpaConfig(weight=1.0)
    context, found = observed(), []
    whole = mbpa_module.fast_errors(EvalBatch(hidden, context), config)
    assert len(whole) == 3
    logits = context.head.logits(hidden)
    rows = [row for row in range(12) if mbpa_module._measured(40 + row)]
    fast, exact = (
        Mbpa(replace(config, solver=method)).log_probs(EvalBatch(hidden, context))[rows]
        for method in ("fast", "exact")
    )
    assert not torch.equal(logits[rows].log_softmax(1), fast)
    torch.testing.assert_close(whole, (exact.exp() * (fast - exact).abs()).sum(1))
    for row in range(12):  # one at a time, as much observed before each as its place says
        start = observed(entries=40 + row)
        found += [row] * len(
            mbpa_module.fast_errors(EvalBatch(hidden[row : row + 1], start), config)
        )
    assert found == rows
    assert (
        len(mbpa_module.fast_errors(EvalBatch(hidden, context), replace(config, solver="exact")))
        == 0
    )


def test_normalizers_bring_the_fast_form_closer() -> None:
    hidden = queries(20)
    config = MbpaConfig(lr=1.0, steps=3, weight=1.0)
    errors = {}
    for fixed in (True, False):
        context = observed(fixed)
        exact = Mbpa(replace(config, solver="exact")).log_probs(EvalBatch(hidden, context))
        fast = Mbpa(config).log_probs(EvalBatch(hidden, context))
        errors[fixed] = float((exact.exp() * (fast - exact).abs()).sum(1).mean())
    assert 0 < errors[True] < errors[False]
