"""The fast form of MbPA beside the exact one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.functional.grouping import group_ids
from hebblm.adapt.solvers import fast
from hebblm.adapt.solvers.exact import solve_exact
from hebblm.adapt.solvers.newton import solve_newton
from hebblm.adapt.solvers.problem import Descent
from hebblm.runtime import blocks
from hebblm.types import Neighbors, OutputHead

from .problems import as_problem, language_like, make_problem

RELATIVE = {"lr": 8.0, "steps": 5, "eps": 3e-3, "lr_units": "relative", "scale": "relative"}


@pytest.mark.parametrize(
    ("steps", "l2_to_base", "stored", "bias"),
    [(1, 0.05, True, False), (5, 0.05, True, True), (5, 0.0, False, True)],
)
def test_equals_exact_where_all_classes_and_directions_are_followed(
    steps: int, l2_to_base: float, stored: bool, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "RIDGE", 1e-13)  # 1e-5 of a direction's length else
    hidden, neighbors, head = make_problem(31, k=9, d=12, v=95, labels=4, zero_rows=2, bias=bias)
    assert fast.active_sizes(group_ids(neighbors.values), neighbors.mask).tolist() == [95] * len(
        hidden
    )
    problem = as_problem(hidden, neighbors, head)
    if not stored:
        problem = replace(problem, log_normalizers=None)
    descent = Descent.at(problem, 2.0, steps, l2_to_base, "relative")
    found, exact = fast.solve_fast(problem, descent), solve_exact(problem, descent)
    torch.testing.assert_close(found.delta, exact.delta, rtol=1e-7, atol=1e-7)
    assert torch.equal(found.loss_increased, exact.loss_increased)


@pytest.mark.parametrize("classes", [13, 205])
def test_small_vocabulary_takes_the_exact_path(classes: int) -> None:
    hidden, neighbors, head = make_problem(32, v=classes)
    options = {"lr": 0.1, "steps": 5, "eps": 1e-3}
    assert torch.equal(
        functional.mbpa_logits(hidden, neighbors, head, solver="fast", **options),
        functional.mbpa_logits(hidden, neighbors, head, **options),
    )


@pytest.mark.parametrize(
    "options",
    [RELATIVE, {**RELATIVE, "steps": 1}, {**RELATIVE, "l2_to_base": 0.02}]
    + [{"lr": lr, "steps": 5, "eps": 1e-3, "lr_units": rate} for lr in (0.1,
    2.0) for rate in ("absolute", "guarded")],
)  # fmt: skip
@pytest.mark.parametrize("stored", [True, False])
def test_near_exact_on_language_like_states(options: dict[str, object], stored: bool) -> None:
    hidden, neighbors, head = language_like(33, n=24, k=60, d=40, v=4000)
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    exact = functional.mbpa_logits(hidden, neighbors, head, **options).log_softmax(1)
    found = functional.mbpa_logits(hidden, neighbors, head, solver="fast", **options).log_softmax(1)
    base = head.logits(hidden).log_softmax(1)
    # what a target drawn from exact would see
    expected = (exact.exp() * (found - exact).abs()).sum(1).mean()
    moved = (exact.exp() * (exact - base).abs()).sum(1).mean()
    assert expected < (2e-3 if stored else 5e-3)
    assert expected < 0.1 * moved


def test_classes_followed_are_every_label_and_then_the_most_probable() -> None:
    hidden, neighbors, head = language_like(34, n=6, k=20, d=10, v=500)
    logits = head.logits(hidden)
    present = neighbors.mask.clone()
    present[0] = False
    chosen = fast.choose(logits, neighbors.values, present, 64)
    assert torch.equal(chosen, chosen.sort(1).values)
    assert set(chosen[0].tolist()) == set(logits[0].topk(64).indices.tolist())
    for row in range(1, 6):
        labels = set(neighbors.values[row].tolist())
        others = [i for i in logits[row].argsort(descending=True).tolist() if i not in labels]
        assert set(chosen[row].tolist()) == labels | set(others[: 64 - len(labels)])


def test_number_of_classes_followed_is_of_a_query_s_own_labels() -> None:
    labels = torch.tensor([[5] * 40, [*range(1, 32)] + [31] * 9, list(range(40))])
    present = torch.ones_like(labels, dtype=torch.bool)
    assert fast.active_sizes(group_ids(labels), present).tolist() == [95, 95, 127]
    present[2, 8:] = False  # eight labels, however many places
    assert fast.active_sizes(group_ids(labels), present).tolist() == [95, 95, 95]


def test_queries_of_different_sizes_are_each_adapted_as_if_alone() -> None:
    hidden, neighbors, head = language_like(35, n=30, k=60, d=20, v=900)
    neighbors.values[::3] %= 7  # few labels, so that sizes differ
    together = functional.mbpa_logits(hidden, neighbors, head, solver="fast", **RELATIVE)
    for row in range(len(hidden)):
        some = slice(row, row + 1)
        alone = functional.mbpa_logits(
            hidden[some], neighbors.rows(some), head, solver="fast", **RELATIVE
        )
        torch.testing.assert_close(together[some], alone, rtol=1e-9, atol=1e-9)


def test_the_order_of_the_neighbors_changes_nothing() -> None:
    hidden, neighbors, head = language_like(36, n=12, k=60, d=40, v=2000)
    problem = as_problem(hidden, neighbors, head)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    assert problem.log_normalizers is not None
    mixed = replace(
        problem,
        keys=problem.keys[:, order],
        labels=problem.labels[:, order],
        weights=problem.weights[:, order],
        log_normalizers=problem.log_normalizers[:, order],
        products=problem.products[:, order],
    )
    one, other = (
        solve_newton(some, steps=3, l2_to_base=0.01, exact=False) for some in (problem, mixed)
    )
    assert one.delta.abs().max() > 0.1
    torch.testing.assert_close(one.delta, other.delta, rtol=1e-6, atol=1e-6)


def test_few_directions_are_factored_without_loss_others_nearly_and_lengths_are_kept() -> None:
    generator = torch.Generator().manual_seed(62)
    plane = torch.randn(fast.RANK - 4, 40, generator=generator, dtype=torch.float64) / 40**0.5
    for noise, tolerance in ((0.0, 1e-3), (0.3, 0.05)):
        problem = as_problem(*make_problem(62, k=70, d=40), eps=10.0)
        keys = problem.keys[:, :, : fast.RANK - 4] @ plane + noise * problem.keys
        factor, query, own = fast.factored(replace(problem, keys=keys))
        gram = keys @ keys.transpose(1, 2) + 1
        taken = factor @ factor.transpose(1, 2) + torch.diag_embed(own)
        torch.testing.assert_close(taken.diagonal(dim1=1, dim2=2), gram.diagonal(dim1=1, dim2=2))
        assert (taken - gram).abs().max() < tolerance * gram.abs().max()
        if not noise:  # and so is a query of these directions
            again = fast.factored(replace(problem, keys=keys, hidden=keys[:, 3]))[1]
            torch.testing.assert_close(again, factor[:, 3], rtol=1e-3, atol=1e-3)
        assert query.shape == factor[:, 0].shape


@pytest.fixture(scope="module")
def mixed() -> tuple[torch.Tensor, Neighbors, OutputHead]:
    """Return queries of which some diverge at an absolute rate, and one has no neighbours."""
    hidden, neighbors, head = language_like(71, n=9, k=40, d=30, v=1200)
    distances, mask = neighbors.distances.clone(), neighbors.mask.clone()
    distances[::2] = 400 + torch.arange(40)
    mask[3] = False
    return hidden, replace(neighbors, distances=distances, mask=mask), head


@pytest.mark.parametrize("method", ["exact", "fast"])
@pytest.mark.parametrize(
    "options", [RELATIVE, {"lr": 30.0, "steps": 3, "eps": 1e-3, "lr_units": "guarded"}],
    ids=["relative", "guarded"]
)  # fmt: skip
@pytest.mark.parametrize("stored", [True, False])
def test_blocks_batch_mates_and_padding_change_nothing(
    mixed: tuple[torch.Tensor, Neighbors, OutputHead],
    method: str,
    options: dict[str, object],
    stored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden, neighbors, head = mixed
    if not stored:
        neighbors = replace(neighbors, log_normalizers=None)
    base = head.logits(hidden)
    whole = functional.mbpa_delta(hidden, neighbors, head, base, solver=method, **options)
    assert torch.equal(whole.delta[3], torch.zeros_like(base[3]))
    assert (whole.delta.abs().amax(1) > 0).sum() == 8
    if options["lr_units"] == "guarded":
        assert 0 < whole.retried.sum() < 8
        assert torch.equal(whole.retried, whole.loss_increased)
    monkeypatch.setattr(blocks, "CPU_BYTES", 1)
    single = functional.mbpa_delta(hidden, neighbors, head, base, solver=method, **options)
    torch.testing.assert_close(single.delta, whole.delta, rtol=1e-9, atol=1e-9)
    assert torch.equal(single.loss_increased, whole.loss_increased)
    assert torch.equal(single.retried, whole.retried)
    monkeypatch.undo()
    pad = torch.nn.functional.pad
    padded = Neighbors(
        pad(neighbors.keys, (0, 0, 0, 160)),
        pad(neighbors.values, (0, 160)),
        pad(neighbors.distances, (0, 160), value=torch.inf),
        pad(neighbors.mask, (0, 160)),
        None if neighbors.log_normalizers is None else pad(neighbors.log_normalizers, (0, 160)),
    )
    wider = functional.mbpa_delta(hidden, padded, head, base, solver=method, **options)
    torch.testing.assert_close(wider.delta, whole.delta, rtol=1e-9, atol=1e-9)


def test_single_precision_stays_finite_without_a_tail() -> None:
    hidden, neighbors, head = make_problem(37, v=1100, d=8, dtype=torch.float32)
    assert head.bias is not None
    far = OutputHead(head.weight, head.bias + 200 * (torch.arange(1100) < 40))
    low = replace(
        neighbors,
        values=neighbors.values % 40,
        log_normalizers=far.logits(neighbors.keys).logsumexp(2),
    )
    for case in (low, replace(low, log_normalizers=None)):
        for options in (RELATIVE, {"lr": 0.1, "steps": 5, "eps": 1e-3}):
            logits = functional.mbpa_logits(hidden, case, far, solver="fast", **options)
            exact = functional.mbpa_logits(hidden, case, far, **options)
            torch.testing.assert_close(
                logits.log_softmax(1), exact.log_softmax(1), rtol=1e-3, atol=1e-2
            )
