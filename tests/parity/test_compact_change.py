"""Statistics of rows and compact changes beside the plainest code, in float64."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from hebblm.adapt import functional as F
from hebblm.adapt.functional.changes import joined
from hebblm.adapt.solvers import fast
from hebblm.adapt.solvers.newton import solve_newton

from .problems import as_problem, language_like

WEIGHTS = [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("classes", [3, 64, 65, 1000])
def test_row_statistics_equal_plain_sums(classes: int) -> None:
    logits = 5 * torch.randn(7, classes, dtype=torch.float64)
    logits[2, 1] = -torch.inf
    logits[3] = 2.0  # all alike: the first is the favorite
    logits[4, -1] = 40.0
    found = F.row_stats(logits)
    log_p = logits.log_softmax(1)
    p = log_p.exp()
    torch.testing.assert_close(found.normalizer, logits.logsumexp(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.entropy, torch.special.entr(p).sum(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.peak, log_p.amax(1), rtol=0, atol=1e-12)
    assert torch.equal(found.favorite, logits.argmax(1))


def test_row_statistics_of_many_rows_are_those_of_each_row() -> None:
    logits = torch.randn(50, 9001)
    whole = F.row_stats(logits)
    for row in (0, 17, 49):
        alone = F.row_stats(logits[row : row + 1])
        torch.testing.assert_close(alone.normalizer, whole.normalizer[row : row + 1])
        torch.testing.assert_close(alone.entropy, whole.entropy[row : row + 1])
    assert F.row_stats(logits[:0]).favorite.shape == (0,)


def some_change(size: float) -> F.CompactChange:
    """Return the change of 8 queries by Newton steps, scaled; the first two follow fewer classes
    than the others.
    """
    problem = as_problem(*language_like(5, n=8, k=60, d=24, v=3000), eps=0.1)
    parts = []
    for rows in (torch.arange(2), torch.arange(2, 8)):
        part = problem.rows(rows)
        if len(rows) == 2:  # a single label: fewer classes are followed
            part.labels[:] = part.labels[:, :1]
        found = solve_newton(part, steps=3, l2_to_base=0.0035, exact=False).change
        assert isinstance(found, F.CompactChange)
        found.change.mul_(size)
        found.moved.mul_(size)
        parts.append((rows, found))
    logits = problem.base_logits
    return joined(logits, logits.logsumexp(1), parts)


def plain_change(change: F.CompactChange) -> torch.Tensor:
    """Return the change (N, V) of all logits, class by class."""
    p = change.logits.softmax(1)
    dense = torch.zeros_like(p)
    for row in range(len(p)):
        own = dict(zip(change.classes[row].tolist(), change.change[row].tolist(), strict=True))
        for index in range(p.shape[1]):
            tail = change.moved[row] * p[row, index] / change.tail[row]
            dense[row, index] = own.get(index, tail)
    return dense


@pytest.mark.parametrize("size", [0.3, 1.0, 1e3])
def test_a_compact_change_is_its_dense_form(size: float) -> None:
    change = some_change(size)
    dense = plain_change(change)
    torch.testing.assert_close(change.dense(), dense, rtol=1e-12, atol=1e-12)
    log_p = change.logits.log_softmax(1)
    for weight in WEIGHTS:
        expected = (log_p + weight * dense).logsumexp(1)
        found = change.growth(torch.full((8, 1), weight, dtype=torch.float64)).squeeze(1)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-5)
    for target in (0, 5, int(change.classes[0, 3]), int(change.classes[7, -1])):
        found = change.at(torch.full((8,), target))
        torch.testing.assert_close(found, dense[:, target], rtol=1e-12, atol=1e-12)
    some = change.rows([3, 1])
    torch.testing.assert_close(some.dense(), dense[[3, 1]], rtol=1e-12, atol=1e-12)


def test_a_tail_that_moves_far_is_summed_over_all_classes() -> None:
    """The series would be off by whole nats there."""
    change = some_change(1.0)
    change.moved.copy_(-40.0 / change.largest)
    expected = (change.logits.log_softmax(1) + plain_change(change)).logsumexp(1)
    found = change.growth(torch.ones(8, 1, dtype=torch.float64)).squeeze(1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_series_of_single_precision_leaves_out_no_more_than_rounding() -> None:
    single = F.CompactChange(
        *(
            value if value.dtype is torch.int64 else value.float()
            for value in (getattr(some_change(1.0), each.name) for each in fields(F.CompactChange))
        )
    )
    rounding = torch.finfo(torch.float32).eps
    # As large as the series may be used for.
    most = (24 * rounding / single.mass.double()) ** 0.25 / single.largest.double()
    single.moved.copy_(0.99 * most)
    double = F.CompactChange(
        *(
            value if value.dtype is torch.int64 else value.double()
            for value in (getattr(single, each.name) for each in fields(F.CompactChange))
        )
    )
    weights = torch.ones(8, 1, dtype=torch.float64)
    # In double precision every class is summed.
    exact, found = double.growth(weights).exp(), single.growth(weights).exp()
    assert ((found - exact).abs() <= 4 * rounding * exact).all()  # its own sums are rounded too
    assert (found != exact).any()


def test_the_tail_of_a_query_is_its_distribution_without_the_followed_classes() -> None:
    problem = as_problem(*language_like(6, n=4, k=60, d=24, v=2000), eps=0.1)
    followed = fast.follow(problem, problem.weights > 0)
    assert followed.tail is not None
    assert followed.classes is not None
    for row in range(4):
        p = problem.base_logits[row].softmax(0)
        rest = p.clone()
        rest[followed.classes[row]] = 0
        q = rest / rest.sum()
        moments = torch.stack([(q**power).sum() for power in (2, 3, 4)])
        torch.testing.assert_close(followed.tail.mass[row], rest.sum(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(followed.tail.moments[row], moments, rtol=1e-9, atol=0)
        torch.testing.assert_close(followed.tail.largest[row], q.max(), rtol=1e-9, atol=0)
        torch.testing.assert_close(followed.shape[row], q, rtol=1e-9, atol=1e-12)
