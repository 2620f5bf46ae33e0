from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt import Context, Interpolated, Mbpa, MbpaConfig, MethodSettings, Unadapted, build_rule
from hebblm.adapt.safeguards import Safeguards
from hebblm.evaluation.loop import Scores
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ...support import toy

CLASSES = 500  # more than the fast form follows


def observed(fixed: bool = True) -> Context:
    head = OutputHead(
        toy.randn(1, CLASSES, toy.DIM, dtype=torch.float64), toy.randn(2, CLASSES, dtype=torch.float64)
    )
    memory = FlatMemory(toy.DIM, dtype=torch.float64)
    counts = torch.ones(CLASSES, dtype=torch.int64)
    context = Context(head, memory, k=9, train_counts=counts, fixed=fixed)
    context.observe(toy.randn(3, 40, toy.DIM, dtype=torch.float64), torch.arange(40) * 7 % CLASSES)
    return context


@pytest.mark.parametrize("name", ["mbpa", "hebb", "hebb-v2", "mixture+mbpa", "mixture+hebb"])
def test_every_method_with_gradient_steps_counts_what_gave_way(name: str) -> None:
    hidden = toy.randn(9, 5, toy.DIM, dtype=torch.float64)
    for tolerance, all_exact in ((0.0, True), (1e6, False)):
        config = MbpaConfig(lr=0.3, steps=3, tolerance=tolerance)
        rule = build_rule(name, replace(toy.SETTINGS, mbpa=config))
        found = rule.safeguards(observed().batch(hidden))
        assert found.exact_fallbacks.tolist() == [all_exact] * 5
        assert not found.widened.any()


def test_what_has_no_gradient_steps_counts_nothing() -> None:
    batch = observed().batch(toy.randn(9, 5, toy.DIM, dtype=torch.float64))
    settings = MethodSettings(mbpa=MbpaConfig(tolerance=0.0))
    for name in ("lstm", "knn", "mixture", "hebb-v1"):
        found = build_rule(name, settings).safeguards(batch)
        assert not (found.stabilized | found.widened | found.exact_fallbacks).any()


def test_either_part_of_a_combination_counts() -> None:
    batch = observed().batch(toy.randn(9, 5, toy.DIM, dtype=torch.float64))
    rule = Interpolated(Unadapted(), Mbpa(MbpaConfig(tolerance=0.0)), 0.5)
    assert rule.safeguards(batch).exact_fallbacks.all()


def test_counts_add_up_over_mini_batches() -> None:
    scores = Scores({})
    some, none = torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.bool)
    scores.count("mbpa", Safeguards(none, some, ~some))
    scores.count("mbpa", Safeguards(some, some, none))
    assert (scores.stabilized, scores.widened, scores.exact_fallbacks) == (
        {"mbpa": 2},
        {"mbpa": 4},
        {"mbpa": 1},
    )


def test_normalizers_bring_the_fast_form_closer() -> None:
    hidden = toy.randn(9, 20, toy.DIM, dtype=torch.float64)
    loose = MbpaConfig(lr=1.0, steps=3, tolerance=1e6)
    errors = {}
    for fixed in (True, False):
        context = observed(fixed)
        exact = Mbpa(replace(loose, method="exact")).log_probs(context.batch(hidden))
        fast = Mbpa(loose).log_probs(context.batch(hidden))
        errors[fixed] = float((exact.exp() * (fast - exact).abs()).sum(1).mean())
    assert 0 < errors[True] < errors[False] / 2
