from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.adapt import functional
from hebblm.adapt.functional import grouping
from hebblm.adapt.functional.grouping import distinct, group_ids, group_logsumexp, label_sums
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

LABEL_ROWS = st.integers(1, 12).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 4), min_size=k, max_size=k), min_size=1, max_size=4)
)


@given(LABEL_ROWS, st.sampled_from([1, 7, 2**24]))
@settings(max_examples=60, deadline=None)
def test_a_group_is_named_by_one_of_its_entries(rows: list[list[int]], scratch: int) -> None:
    labels = torch.tensor(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "SCRATCH", scratch)
        ids = group_ids(labels)
    assert torch.equal(labels.gather(1, ids), labels)
    assert torch.equal(ids[:, :, None] == ids[:, None, :], labels[:, :, None] == labels[:, None, :])
    present = labels != labels[:, :1]
    assert distinct(ids, present | True).tolist() == [len(set(row)) for row in rows]
    assert distinct(ids, present).tolist() == [len(set(row) - {row[0]}) for row in rows]


def test_no_label_is_no_group() -> None:
    nothing = torch.zeros(3, 0, dtype=torch.int64)
    assert group_ids(nothing).shape == (3, 0)
    assert distinct(nothing, nothing.bool()).tolist() == [0, 0, 0]


@given(LABEL_ROWS, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_sums_over_labels_stand_at_one_entry_of_each(rows: list[list[int]], seed: int) -> None:
    labels = torch.tensor(rows)
    member = torch.rand(labels.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    members, sizes = label_sums(labels, torch.stack([member.double(), torch.ones(labels.shape)]))
    for row, own, some, all_of_it in zip(rows, member, members, sizes, strict=True):
        at = {row[place]: int(place) for place in all_of_it.nonzero()}
        assert at.keys() == set(row)
        assert {label: float(all_of_it[place]) for label, place in at.items()} == Counter(row)
        counted = Counter(label for label, inside in zip(row, own, strict=True) if inside)
        assert {label: float(some[place]) for label, place in at.items() if some[place]} == counted
        assert int(some.count_nonzero()) == len(counted)


@given(LABEL_ROWS, st.integers(0, 1000), st.sampled_from([0.0, 1.0, 1e5]))
@settings(max_examples=60, deadline=None)
def test_group_logsumexp_takes_each_label_together(
    rows: list[list[int]], seed: int, scale: float
) -> None:
    labels = torch.tensor(rows)
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(labels.shape, generator=generator, dtype=torch.float64)
    scores[torch.rand(labels.shape, generator=generator) < 0.3] = -torch.inf
    same = labels[:, :, None] == labels[:, None, :]
    expected = scores[:, None, :].expand(same.shape).masked_fill(~same, -torch.inf).logsumexp(2)
    torch.testing.assert_close(group_logsumexp(scores, labels), expected)


@given(st.integers(1, 40), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_weights_equal_exact_arithmetic(n: int, thousandths: int) -> None:
    beta = Fraction(thousandths, 1000)
    expected = float((1 - beta) / (1 - beta**n))
    assert functional.hebb_weights(torch.tensor([n]), thousandths / 1000).item() == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("beta", [0.0, 1e-9, 0.5, 0.9, 0.99])
def test_weights_of_many_counts_are_those_of_each(beta: float) -> None:
    counts = torch.randint(0, 5000, (3, 2000), generator=torch.Generator().manual_seed(0))
    counts[0, :400] = torch.arange(400)
    each = torch.cat(
        [functional.hebb_weights(some, beta) for some in counts.flatten().split(1)]
    ).view(counts.shape)
    assert torch.equal(functional.hebb_weights(counts, beta), each)


def test_weights_at_the_ends() -> None:
    counts = torch.tensor([0, 1, 10**9])
    assert functional.hebb_weights(counts, 0.0).tolist() == [0, 1, 1]
    assert functional.hebb_weights(counts, 0.6).tolist() == pytest.approx([0, 1, 0.4])
    # as beta nears 1, E_i nears 1 / n_i, where 1 - beta^n has no digit left
    near = functional.hebb_weights(torch.tensor([0, 1, 2, 1000]), 1 - 2**-53)
    assert near.tolist() == pytest.approx([0, 1, 1 / 2, 1 / 1000], rel=1e-9)


def one_query() -> tuple[torch.Tensor, Neighbors, OutputHead]:
    hidden = torch.tensor([[1.0, 2.0]])
    keys = torch.tensor([[[1.0, 2.0], [0.0, 2.0], [1.0, 0.0]]])
    distances = torch.tensor([[0.0, 1.0, 4.0]])
    labels = torch.tensor([[3, 1, 3]])
    head = OutputHead(torch.zeros(5, 2), torch.zeros(5))
    return hidden, Neighbors(keys, labels, distances, torch.ones(1, 3, dtype=torch.bool)), head


def of_label(term: functional.HebbianTerm) -> dict[int, float]:
    assert not term.values[~term.chosen].any()
    chosen = term.chosen.nonzero().tolist()
    found = {int(term.labels[row, place]): float(term.values[row, place]) for row, place in chosen}
    assert len(found) == len(chosen), "one entry a label"
    return found


def test_term_by_hand() -> None:
    hidden, neighbors, _ = one_query()
    term = functional.hebbian_term(neighbors, hidden, eps=1.0)
    # c = 1, 1/2, 1/5; h_k . h + 1 = 6, 5, 2; label 3 has two entries
    assert of_label(term) == {1: pytest.approx(2.5), 3: pytest.approx(3.2)}
    bare = functional.hebbian_term(neighbors, hidden, eps=1.0, bias=False)
    assert of_label(bare) == {1: pytest.approx(2.0), 3: pytest.approx(2.6)}
    new = functional.hebbian_term(neighbors, hidden, eps=1.0, hebbian_classes=torch.arange(5) == 1)
    assert new.chosen.tolist() == [[False, True, False]]
    torch.testing.assert_close(new.values, torch.tensor([[0.0, 2.5, 0.0]]))


def test_combination_by_hand() -> None:
    hidden, neighbors, _ = one_query()
    term = functional.hebbian_term(neighbors, hidden, eps=1.0, hebbian_classes=torch.arange(5) == 3)
    base, delta = torch.full((1, 5), 10.0), torch.ones(1, 5)
    weights = torch.tensor([0.5, 0.5, 0.5, 0.25, 0.0], dtype=torch.float64)
    gated = functional.hebb_combine(base, delta, term, weights, eta=2.0)
    torch.testing.assert_close(gated, torch.tensor([[11, 11, 11, 10 + 0.75 + 0.25 * 2 * 3.2, 11]]))
    literal = functional.hebb_combine(base, delta, term, weights, eta=2.0, gate="literal")
    torch.testing.assert_close(
        literal, torch.tensor([[10.5, 10.5, 10.5, 10 + 0.75 + 0.25 * 2 * 3.2, 11]])
    )


OPTIONS = {"lr": 0.01, "steps": 2, "eta": 0.5, "beta": 0.5, "eps": 1.0, "counts": torch.ones(5)}


@pytest.mark.parametrize(
    "change",
    [
        {"counts": torch.tensor([1, 0, 1, 0, 1])},
        {"hebbian_classes": torch.zeros(5, dtype=torch.bool)},
    ],
    ids=["a class never counted", "no new class among the neighbors"],
)
def test_without_a_bump_it_is_mbpa(change: dict[str, torch.Tensor]) -> None:
    hidden, neighbors, head = one_query()
    adapted = functional.mbpa_logits(hidden, neighbors, head, lr=0.01, steps=2, eps=1.0)
    assert torch.equal(
        functional.hebb_logits(hidden, neighbors, head, **{**OPTIONS, **change}), adapted
    )


def test_closeness_normalisation_reaches_both_terms() -> None:
    hidden, neighbors, head = one_query()
    raw = functional.hebb_logits(hidden, neighbors, head, lr_units="absolute", **OPTIONS)
    total = 1 + 1 / 2 + 1 / 5
    scaled = {**OPTIONS, "lr": 0.01 * total, "eta": 0.5 * total}
    actual = functional.hebb_logits(
        hidden, neighbors, head, kernel_normalization="sum", lr_units="absolute", **scaled
    )
    torch.testing.assert_close(actual, raw)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta": 1.0}, "beta = 1.0"),
        ({"beta": -0.1}, "beta = -0.1"),
        ({"eta": -1.0}, "eta = -1.0"),
        ({"eps": -1.0}, "eps = -1.0"),
        ({"lr": -1.0}, "lr = -1.0"),
        ({"gate": "ajar"}, "gate = 'ajar'"),
        ({"weighting": "static"}, "weighting = 'static'"),
        ({"weighting": 1.5}, "weighting = 1.5"),
        ({"counts": torch.ones(4)}, r"counts has shape \(4,\)"),
    ],
)
def test_bad_values_are_named(options: dict[str, object], words: str) -> None:
    hidden, neighbors, head = one_query()
    with pytest.raises(UserError, match=words):
        functional.hebb_logits(hidden, neighbors, head, **{**OPTIONS, **options})
