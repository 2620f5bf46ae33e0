"""Keys that are the signed square roots of states, beside the same computed from the states in
plain code.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.mbpa import MbpaConfig, mbpa_result
from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from hebblm.memory import HybridMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.base import signed_sqrt, squared
from hebblm.types import Neighbors, OutputHead
from tests.support import toy
from tests.support.equations import cache_log_probs

WORDS, ENTRIES = 30, 60
OWNER = {"model_hash": "model", "dictionary_hash": "dictionary"}


def context_of(keys: str, entries: int = ENTRIES) -> tuple[Context, torch.Tensor, torch.Tensor]:
    """A context that observed some pairs, one dimension of whose states is far larger than the
    others.
    """
    head = OutputHead(toy.randn(0, WORDS, toy.DIM, dtype=torch.float64), None)
    memory = build_memory(toy.DIM, MemoryConfig(index="exact", keys=keys))
    context = Context(
        head, memory, k=7, train_counts=torch.ones(WORDS, dtype=torch.int64), window=20
    )
    hidden = toy.randn(1, entries, toy.DIM, dtype=torch.float64)
    hidden[:, 0] *= 50
    labels = torch.arange(entries) % WORDS
    toy.observe(context, hidden, labels)
    return context, hidden, labels


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_squares_of_roots_are_the_states(numbers: list[float]) -> None:
    states = torch.tensor(numbers, dtype=torch.float64)
    roots = signed_sqrt(states)
    torch.testing.assert_close(
        roots,
        torch.tensor([abs(x) ** 0.5 * (-1 if x < 0 else 1) for x in numbers], dtype=torch.float64),
    )
    torch.testing.assert_close(squared(roots), states)


def test_neighbours_are_the_nearest_by_their_roots_and_enter_the_head_as_states() -> None:
    context, hidden, labels = context_of("root")
    queries = toy.randn(2, 5, toy.DIM, dtype=torch.float64)
    batch = EvalBatch(queries, context)
    distances = (signed_sqrt(queries)[:, None] - signed_sqrt(hidden)[None]).square().sum(2)
    nearest = distances.sort(dim=1).indices[:, :7]
    assert torch.equal(batch.neighbors.values, labels[nearest])
    torch.testing.assert_close(batch.near_states.keys, hidden[nearest], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        batch.state_products, (queries[:, None] * hidden[nearest]).sum(2), rtol=1e-5, atol=1e-5
    )
    plain = Neighbors(
        hidden[nearest],
        labels[nearest],
        distances.gather(1, nearest),
        torch.ones(5, 7, dtype=torch.bool),
    )
    config = replace(toy.SETTINGS[MbpaConfig], solver="exact")
    expected = F.mbpa_delta(
        queries, plain, context.head, context.head.logits(queries), lr=config.lr,
        steps=config.steps, eps=config.eps,
        lr_units=config.lr_units, solver="exact", optimizer=config.optimizer,
        l2_to_base=config.l2_to_base,
        kernel_normalization=config.kernel_weight, scale=config.scale,
    )  # fmt: skip
    torch.testing.assert_close(
        mbpa_result(batch, config).delta, expected.delta, rtol=1e-4, atol=1e-5
    )


def test_a_cache_weighs_by_products_of_roots() -> None:
    context, hidden, labels = context_of("root")
    queries = toy.randn(3, 4, toy.DIM, dtype=torch.float64)
    rule = METHODS["cache"].predictor(toy.SETTINGS.replaced(CacheConfig(20, 0.7, 0.3)))
    context.learn_mixture_weights([rule])
    expected = cache_log_probs(
        signed_sqrt(queries), signed_sqrt(hidden[-20:]), labels[-20:],
        OutputHead(torch.zeros(WORDS, toy.DIM, dtype=torch.float64), None), theta=0.7, weight=1.0,
        scale="relative",
    ).exp()  # fmt: skip
    base = context.head.logits(queries).softmax(1)
    torch.testing.assert_close(
        rule.log_probs(EvalBatch(queries, context)).exp(),
        0.7 * base + 0.3 * expected,
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize("name", ["cache", "knn", "mixture", "mbpa", "hebb"])
def test_a_block_is_scored_as_token_by_token(name: str) -> None:
    queries, labels = toy.randn(4, 12, toy.DIM, dtype=torch.float64), torch.arange(12) % 5
    (first, *_), (second, *_) = context_of("root"), context_of("root")
    rule = METHODS[name].predictor(toy.SETTINGS)
    first.learn_mixture_weights([rule])
    second.learn_mixture_weights([rule])
    whole = rule.score(EvalBatch(queries, first, Block.of(labels, 3, written=True)), labels)
    parts = []
    for begin in range(0, 12, 3):
        some = slice(begin, begin + 3)
        batch = EvalBatch(queries[some], second)
        parts.append(rule.score(batch, labels[some]))
        second.observe(batch.observation(labels[some]))
    torch.testing.assert_close(whole, torch.cat(parts), rtol=1e-5, atol=1e-6)


def test_a_saved_memory_says_what_its_keys_are_and_one_without_a_word_has_states(
    tmp_path: Path,
) -> None:
    context, hidden, _ = context_of("root")
    save_memory(context.memory, tmp_path / "memory", **OWNER)
    loaded = load_memory(tmp_path / "memory", **OWNER)
    assert loaded.signed_sqrt
    assert loaded.describe()["keys"] == "root"
    torch.testing.assert_close(
        loaded.states_of(loaded.segments()[0].keys), hidden.float(), rtol=1e-5, atol=1e-5
    )
    assert HybridMemory.over(loaded).signed_sqrt
    manifest = read_json(tmp_path / "memory" / "manifest.json")
    del manifest["keys"]
    manifest.pop("sha256", None)
    write_json(tmp_path / "memory" / "manifest.json", manifest, seal=True)
    assert not load_memory(tmp_path / "memory", **OWNER).signed_sqrt


def test_states_stay_states_where_that_is_asked_for() -> None:
    context, hidden, _ = context_of("state")
    batch = EvalBatch(hidden[:3], context)
    assert batch.near_states is batch.neighbors
    assert batch.state_products is batch.products
    assert torch.equal(batch.queries, hidden[:3])
    assert MemoryConfig(keys="state").identity() == {
        **MemoryConfig(keys="state").identity(),
        "dtype": "float32",
    }
    # a memory of an earlier version is found again
    assert "keys" not in MemoryConfig(keys="state").identity()


def test_an_unknown_kind_of_key_is_refused() -> None:
    with pytest.raises(UserError, match=r"memory.keys.*use one of root, state"):
        MemoryConfig(keys="roots")
