"""What every adaptation method promises, over every memory, checked by running it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hebblm
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.predictor import Requirements
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.online.session import FixedHead, OnlineSession

from ..support import toy
from ..support.adapters import (
    MEMORIES,
    RULES,
    WIDE,
    MemoryMaker,
    adapter_of,
    configured,
    every_form,
    every_memory,
    every_method,
    every_method_in_each_of_its_forms,
    filled,
    queries,
)


def state_of(context: Context) -> list[Tensor]:
    """Return copies of everything that a prediction may depend on."""
    probe = toy.randn(77, 5, toy.DIM, dtype=context.head.weight.dtype)
    near = context.memory.search(probe, 50)
    tensors = [
        context.head.weight, context.observed, context.train_counts, *context.recent.latest(99),
        near.keys, near.values, near.distances, near.mask, torch.tensor(len(context.memory)),
        torch.tensor([x for share in context.mixture_weights.values() for x in share.as_floats],
        dtype=torch.float64),
    ]  # fmt: skip
    return [tensor.clone() for tensor in tensors]


def assert_same_state(first: list[Tensor], second: list[Tensor]) -> None:
    assert len(first) == len(second)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("config", [toy.SETTINGS, toy.LEARNED], ids=["numbers", "learned"])
def test_over_dynamic_evaluation_a_method_has_its_own_rule(config: MethodSettings) -> None:
    for name in METHODS:
        over, _, method = name.partition("+")
        if METHODS[over].uses_dynamic_base and method:
            assert METHODS[name].predictor(config) == METHODS[method].predictor(config)


@every_method
def test_a_session_gives_every_method_as_an_adapter(method: str) -> None:
    """Each call is that of the protocol, and what one observes the others see."""
    rules = {name: METHODS[name].predictor(toy.SETTINGS) for name in (method, "mixture")}
    context = filled(MEMORIES["flat"])
    session = OnlineSession(FixedHead(context.head), [context], rules)
    adapter: hebblm.Adapter = session.adapter(method)
    assert isinstance(adapter, hebblm.Adapter)
    other, hidden = session.adapter("mixture"), queries(8, 4, context)
    before, entries = other.predict(hidden).clone(), len(context.memory)
    adapter.update(hidden, torch.arange(WIDE - 4, WIDE))
    assert len(context.memory) == entries + 4
    assert not torch.equal(other.predict(hidden), before)
    with pytest.raises(UserError, match=f"rows of the softmax layer, which has {WIDE} rows"):
        adapter.update(hidden, torch.tensor([0, 1, 2, WIDE]))
    with pytest.raises(UserError, match="'mbap' is not a predictor of this session"):
        session.adapter("mbap")


@every_method_in_each_of_its_forms
@pytest.mark.parametrize(
    ("make", "dtype"),
    [*((make, torch.float32) for make in MEMORIES.values()), (MEMORIES["flat"], torch.float64)],
    ids=[*MEMORIES, "flat fp64"],
)
def test_probabilities_sum_to_one_and_scores_are_gathered(
    method: str, make: MemoryMaker, form: str, dtype: torch.dtype
) -> None:
    context = filled(make, dtype)
    adapter = adapter_of(context, METHODS[method].predictor(configured(form)))
    hidden = queries(0, 6, context)
    log_probs = adapter.predict(hidden)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    assert log_probs.shape == (6, WIDE)
    assert log_probs.dtype is dtype
    assert not log_probs.isnan().any()
    assert torch.allclose(
        log_probs.exp().sum(1), torch.ones(6, dtype=dtype), atol=tolerance, rtol=0
    )
    targets = torch.tensor([0, WIDE - 1, 5, 5, 17, WIDE - 3])
    gathered = -log_probs[torch.arange(6), targets]
    assert torch.allclose(adapter.score(hidden, targets), gathered, atol=tolerance, rtol=tolerance)


@every_method
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 1000), entries=st.sampled_from([0, 1, 3, 60]),
    form=st.sampled_from(["fast", "exact"]),
    bias=st.booleans(),
)  # fmt: skip
def test_probabilities_sum_to_one_whatever_was_observed(
    method: str, seed: int, entries: int, form: str, bias: bool
) -> None:
    context = filled(MEMORIES["flat"], torch.float64, seed=seed, entries=entries, bias=bias)
    rule = METHODS[method].predictor(configured(form))
    log_probs = rule.log_probs(EvalBatch(queries(seed, 4, context), context))
    assert torch.allclose(
        log_probs.exp().sum(1), torch.ones(4, dtype=torch.float64), atol=1e-11, rtol=0
    )


@every_method
def test_without_observations_every_method_is_the_base(method: str) -> None:
    context = filled(MEMORIES["flat"], entries=0)
    hidden = queries(3, 5, context)
    base = context.head.logits(hidden).log_softmax(1)
    assert torch.allclose(
        adapter_of(context, METHODS[method].predictor(toy.SETTINGS)).predict(hidden),
        base,
        atol=1e-6,
    )


@every_memory
@every_form
def test_predict_is_pure_and_the_order_of_methods_is_irrelevant(
    make: MemoryMaker, form: str
) -> None:
    context = filled(make)
    rules = {
        method: METHODS[method].predictor(toy.LEARNED.replaced(configured(form)[MbpaConfig]))
        for method in RULES
    }
    context.learn_mixture_weights(rules.values())
    toy.observe(context, queries(9, 6, context), torch.arange(6))  # something is learned
    hidden = queries(1, 6, context)
    kept = hidden.clone()
    before = state_of(context)
    alone = {
        method: rule.log_probs(EvalBatch(hidden.clone(), context)) for method, rule in rules.items()
    }
    copies = {method: values.clone() for method, values in alone.items()}
    for order in (list(RULES), list(reversed(RULES))):
        shared = EvalBatch(hidden.clone(), context)
        for method in order + order:
            assert torch.equal(rules[method].log_probs(shared), copies[method]), method
    assert_same_state(before, state_of(context))
    assert torch.equal(hidden, kept)
    assert all(torch.equal(alone[method], copies[method]) for method in RULES), (
        "a result was changed afterwards"
    )


@every_method
@every_memory
@pytest.mark.parametrize("config", [toy.SETTINGS, toy.LEARNED], ids=["numbers", "learned"])
def test_update_changes_and_reset_restores_bit_for_bit(
    method: str, make: MemoryMaker, config: MethodSettings
) -> None:
    context = filled(make, entries=0)
    rule = METHODS[method].predictor(config)
    adapter = adapter_of(context, rule)
    # old and new classes
    hidden, labels = toy.randn(5, 30, toy.DIM), torch.arange(WIDE - 40, WIDE - 10)
    start = state_of(context)
    fresh = adapter.predict(hidden[:5]).clone()
    adapter.update(hidden, labels)
    learnt = adapter.predict(hidden[:5]).clone()
    assert torch.equal(learnt, fresh) == (rule.requirements == Requirements()), (
        "only the base ignores what was observed"
    )
    adapter.reset()
    assert_same_state(start, state_of(context))
    assert torch.equal(adapter.predict(hidden[:5]), fresh)
    adapter.update(hidden, labels)
    assert torch.equal(adapter.predict(hidden[:5]), learnt)


@every_memory
def test_reset_returns_to_the_marked_base_of_a_memory(make: MemoryMaker) -> None:
    context = filled(make)
    context.memory.mark_base()  # type: ignore[attr-defined]
    length, near = len(context.memory), context.memory.search(toy.randn(1, 3, toy.DIM), 9)
    toy.observe(context, toy.randn(2, 40, toy.DIM), torch.zeros(40, dtype=torch.int64))
    context.reset()
    after = context.memory.search(toy.randn(1, 3, toy.DIM), 9)
    assert len(context.memory) == length
    assert torch.equal(near.keys, after.keys)
    assert torch.equal(near.values, after.values)
    assert int(context.observed.sum()) == len(context.recent.latest(99)[1]) == 0


@every_method_in_each_of_its_forms
@every_memory
def test_rows_scored_together_or_alone_are_the_same(
    method: str, make: MemoryMaker, form: str
) -> None:
    context = filled(make)
    rule = METHODS[method].predictor(configured(form))
    hidden = queries(2, 7, context)
    together = rule.log_probs(EvalBatch(hidden, context))
    alone = torch.cat([rule.log_probs(EvalBatch(row[None], context)) for row in hidden])
    padded = rule.log_probs(
        EvalBatch(torch.cat([hidden, torch.zeros(3, toy.DIM), hidden.flip(0)]), context)
    )[:7]
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together, padded, atol=1e-5)


@every_method
def test_the_answer_is_only_looked_up(method: str) -> None:
    context = filled(MEMORIES["flat"])
    adapter = adapter_of(context, METHODS[method].predictor(toy.SETTINGS))
    hidden = queries(4, 6, context)
    repeated = hidden[:1].expand(WIDE, -1).contiguous()
    # each class as the answer to one query
    every_answer = adapter.score(repeated, torch.arange(WIDE))
    shuffled = torch.randperm(WIDE, generator=torch.Generator().manual_seed(0))
    assert torch.equal(adapter.score(repeated, shuffled), every_answer[shuffled])
    assert float((-every_answer).exp().sum()) == pytest.approx(1, abs=1e-4)
