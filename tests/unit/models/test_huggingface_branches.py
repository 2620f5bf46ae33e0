"""Continuations that a model with attention reads in one pass, as a tree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.models.base import GradientBase
from hebblm.models.huggingface import base as module
from hebblm.models.huggingface.base import HuggingFaceBase
from hebblm.models.huggingface.branches import Tree
from tests.unit.models.test_streams import opened

ROWS = [[5, 6, 7], [5, 6], [5, 8], [9], [9, 5, 6], [5, 6, 7]]


def rows_of(rows: list[list[int]]) -> list[Tensor]:
    return [torch.tensor(row) for row in rows]


def test_a_beginning_that_rows_share_is_in_a_tree_once() -> None:
    tree = Tree.of(rows_of(ROWS))
    assert tree.ids.tolist() == [5, 6, 7, 8, 9, 5, 6]
    assert tree.depth.tolist() == [0, 1, 2, 1, 0, 1, 2]
    assert [[int(tree.ids[at]) for at in path] for path in tree.places] == ROWS
    for path in tree.places:
        for count, place in enumerate(path, 1):
            assert tree.sees[place].nonzero()[:, 0].tolist() == sorted(path[:count])


# Bloom has biases by distance in place of positions; Mistral and Gemma 2 attend to the last tokens
# alone, and their caches drop the others.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Llama", True), ("Qwen3", True), ("GPTNeoX", True), ("OPT", True), ("Falcon", True),
        ("Bloom", False), ("Mistral", False), ("Gemma2", False), ("Mamba", False),
    ],
)  # fmt: skip
def test_trees_are_read_where_they_give_the_states_of_plain_reading(
    name: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = opened(name).base()
    base.read(torch.arange(3, 9))
    rows = rows_of(ROWS)
    plain = GradientBase.continuations(base, rows)
    calls = []
    read = HuggingFaceBase._in_a_tree
    base.continuations(rows)  # which tests the model once
    monkeypatch.setattr(
        HuggingFaceBase,
        "_in_a_tree",
        lambda base, rows: calls.append(len(rows)) or read(base, rows),
    )
    for most in (512, 5, 1):
        monkeypatch.setattr(module, "MOST", most)
        calls.clear()
        for states, alone in zip(base.continuations(rows), plain, strict=True):
            torch.testing.assert_close(states, alone, atol=2e-5, rtol=1e-4)
        assert sum(calls) == (len(rows) if expected else 0)
        assert len(calls) == ({512: 1, 5: 4, 1: 6}[most] if expected else 0)


def test_a_model_is_tested_once() -> None:
    model = opened("Llama")
    first, second = model.base(), model.base()
    for base in (first, second):
        base.read(torch.arange(3, 9))
    first.continuations(rows_of(ROWS))
    assert model.tried == {"tree": True}
    model.tried["tree"] = False  # what was found is not found again
    second.continuations(rows_of(ROWS))
    assert model.tried == {"tree": False, "batch": True}
