"""Queries followed a few at a time: which go together changes nothing, and nothing wide is copied before its time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.functional import blocks
from hebblm.adapt.functional.escalation import Level, escalate
from hebblm.adapt.functional.guard import suspects
from hebblm.adapt.functional.problem import Problem, Solution
from hebblm.adapt.functional.widths import GROUP, marked, top
from hebblm.types import Neighbors, OutputHead

from .test_fast_form import as_problem, language_like

Case = tuple[torch.Tensor, Neighbors, OutputHead]


@pytest.fixture(scope="module")
def case() -> Case:
    """Return queries some of which follow few classes and some many, some of which may diverge and some not."""
    hidden, neighbors, head = language_like(71, n=12, k=140, d=70, v=1500)
    values, distances = neighbors.values.clone(), neighbors.distances.clone()
    values[::3] = torch.arange(140) + 700  # too many different labels for few classes
    distances[::2] = 400 + torch.arange(140)
    return hidden, replace(neighbors, values=values, distances=distances), head


def test_the_case_has_queries_of_every_kind(case: Case) -> None:
    hidden, neighbors, head = case
    problem = as_problem(hidden, neighbors, head)
    narrow = marked(problem, rate=2.0, steps=1, tolerance=1e-3).narrow
    watched = suspects(problem, rate=2.0, pull=0.0)
    assert narrow is not None
    kinds = {(bool(few), bool(looked)) for few, looked in zip(narrow, watched, strict=True)}
    assert len(kinds) == 4
    found = functional.mbpa_delta(
        hidden, neighbors, head, head.logits(hidden), lr=30.0, steps=1, eps=1e-3, method="fast"
    )
    assert 0 < found.stabilized.sum() < 12


@pytest.mark.parametrize(("steps", "lr"), [(1, 2.0), (1, 30.0), (3, 0.1), (3, 4.0)])
def test_blocks_and_batch_mates_change_nothing(
    case: Case, steps: int, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, neighbors, head = case
    options = {"lr": lr, "steps": steps, "eps": 1e-3, "method": "fast"}
    base = head.logits(hidden)
    whole = functional.mbpa_delta(hidden, neighbors, head, base, **options)
    monkeypatch.setattr(blocks, "CPU_BYTES", 1)
    single = functional.mbpa_delta(hidden, neighbors, head, base, **options)
    torch.testing.assert_close(single.delta, whole.delta, rtol=1e-10, atol=1e-11)
    for name in ("stabilized", "widened", "exact_fallbacks"):
        assert torch.equal(getattr(single, name), getattr(whole, name))
    for row in range(0, 12, 5):
        one = slice(row, row + 1)
        parts = (neighbors.keys, neighbors.values, neighbors.distances, neighbors.mask)
        alone = Neighbors(*(part[one] for part in parts), neighbors.log_normalizers[one])
        found = functional.mbpa_delta(hidden[one], alone, head, base[one], **options)
        torch.testing.assert_close(found.delta, whole.delta[one], rtol=1e-10, atol=1e-11)


def test_a_failed_query_goes_on_with_a_form_it_has_not_seen(case: Case) -> None:
    problem = marked(as_problem(*case), rate=0.1, steps=1, tolerance=1e-3)
    assert problem.narrow is not None
    seen: list[int] = []

    def fail(part: Problem, rates: torch.Tensor, watch: torch.Tensor) -> Solution:
        seen.append(len(rates))
        return Solution(torch.zeros_like(part.base_logits), watch, torch.full_like(rates, torch.inf), rates)

    kinds = ("narrow", "fast", "wide", "exact")
    forms = [Level(kind, fail, 99) for kind in kinds]
    found = escalate(
        problem, forms, lambda part, solve, rates: solve(part, rates, rates < 0), rate=0.1, tolerance=1.0
    )
    assert seen == [12, int(problem.narrow.sum()), 12, 12]
    assert found.exact_fallbacks.all()


def test_rows_of_rows_are_those_of_the_whole(case: Case) -> None:
    hidden, neighbors, head = case
    whole = as_problem(hidden, neighbors, head)
    half = replace(whole, stored=whole.stored.half(), probs=whole.base_probs).measured()
    some = torch.zeros(12, dtype=torch.bool)
    some[[1, 2, 5, 8, 11]] = True
    part = half.rows(some).rows(torch.tensor([3, 0, 4])).rows(slice(1, 3))
    picked = [1, 11]
    assert torch.equal(part.keys, whole.keys.half().double()[picked])
    assert torch.equal(part.base_logits, whole.base_logits[picked])
    assert torch.equal(part.base_probs, whole.base_probs[picked])
    torch.testing.assert_close(part.query_products, whole.query_products[picked], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(part.squared_norms, part.gram.diagonal(dim1=1, dim2=2))
    view = half.rows(slice(2, 7))
    assert view.stored.data_ptr() == half.stored[2].data_ptr()
    assert torch.equal(view.rows(torch.tensor([0])).base_logits, whole.base_logits[2:3])


@pytest.mark.parametrize("classes", [40, 100, 100 + GROUP - 1, 1000])
def test_top_is_the_largest_in_order(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    values = torch.randn(6, classes, generator=generator)
    values[0, 3::7] = torch.inf
    values[1, -5:] = torch.inf  # those left over from whole groups
    values[2] = values[2].round()  # many alike
    values[3] = values[3].sort().values
    found = top(values, 5)
    assert torch.equal(values.gather(1, found), values.topk(5, dim=1).values)
    assert all(len(set(row)) == 5 for row in found.tolist())
