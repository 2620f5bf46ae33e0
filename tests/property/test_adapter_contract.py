"""What every adaptation method promises, over every memory, checked by running it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hebblm.adapt import (
    DYNAMIC,
    METHODS,
    BestConfig,
    CacheConfig,
    Context,
    ContextAdapter,
    DynamicMixtureConfig,
    KnnConfig,
    MethodSettings,
    MixtureConfig,
    MixtureHebbConfig,
    MixtureMbpaConfig,
    Tempered,
    TemperedConfig,
)
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaGuardedConfig
from hebblm.adapt.methods.rule import dotted
from hebblm.evaluation.loop import Scores, evaluate
from hebblm.evaluation.pace import READ_AHEAD
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.types import Adapter, OutputHead

from ..support import toy

RULES = [name for name in METHODS if name != DYNAMIC]  # over whichever base; "dynamic" is that base itself
WIDE = 576  # classes; the fast form follows 255 of them
MemoryMaker = Callable[[torch.dtype], AnyMemory]

MEMORIES: dict[str, MemoryMaker] = {
    "flat": lambda dtype: FlatMemory(toy.DIM, dtype=dtype),
    "ring": lambda dtype: RingMemory(toy.DIM, 25, dtype=dtype),
    "hybrid": lambda dtype: HybridMemory(
        FlatMemory(toy.DIM, dtype=dtype), FlatMemory(toy.DIM, dtype=dtype), flush_at=11
    ),
}
every_method = pytest.mark.parametrize("method", RULES)
every_memory = pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())
every_form = pytest.mark.parametrize("form", ["fast", "exact"])
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])


def configured(form: str) -> MethodSettings:
    return toy.exact(toy.SETTINGS) if form == "exact" else toy.SETTINGS


def filled(
    make: MemoryMaker,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    entries: int = 40,
    bias: bool = True,
) -> Context:
    """Return a context that observed some pairs, among them new classes and the same state twice."""
    head = OutputHead(
        toy.randn(seed, WIDE, toy.DIM, dtype=dtype), toy.randn(seed + 1, WIDE, dtype=dtype) if bias else None
    )
    counts = torch.arange(WIDE).flip(0)
    new = torch.arange(WIDE) >= WIDE - 20
    context = Context(
        head, make(dtype), k=7, train_counts=counts.masked_fill(new, 0), new_classes=new, window=13
    )
    if entries:
        hidden = toy.randn(seed + 2, entries, toy.DIM, dtype=dtype)
        hidden[1:2] = hidden[:1]
        labels = torch.randint(0, WIDE, (entries,), generator=torch.Generator().manual_seed(seed))
        labels[::3] = WIDE - 1 - labels[::3] % 5
        context.observe(hidden, labels)
    return context


def queries(seed: int, count: int, context: Context) -> Tensor:
    """Return queries, the first of which lies on an entry of the memory."""
    hidden = toy.randn(seed + 10, count, toy.DIM, dtype=context.head.weight.dtype)
    if len(context.memory):
        hidden[0] = context.memory.search(hidden[:1], 1).keys[0, 0]
    return hidden


def state_of(context: Context) -> list[Tensor]:
    """Return copies of everything that a prediction may depend on."""
    probe = toy.randn(77, 5, toy.DIM, dtype=context.head.weight.dtype)
    near = context.memory.search(probe, 50)
    tensors = [
        context.head.weight, context.observed, context.train_counts, *context.recent.latest(99),
        near.keys, near.values, near.distances, near.mask, torch.tensor(len(context.memory)),
        torch.tensor([x for share in context.shares.values() for x in share.numbers], dtype=torch.float64),
    ]  # fmt: skip
    return [tensor.clone() for tensor in tensors]


def assert_same_state(first: list[Tensor], second: list[Tensor]) -> None:
    assert len(first) == len(second)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@every_method
def test_is_an_adapter(method: str) -> None:
    assert isinstance(ContextAdapter(filled(MEMORIES["flat"]), METHODS[method].rule(toy.SETTINGS)), Adapter)


@every_method
@every_memory
@every_form
@both_dtypes
def test_probabilities_sum_to_one_and_scores_are_gathered(
    method: str, make: MemoryMaker, form: str, dtype: torch.dtype
) -> None:
    context = filled(make, dtype)
    adapter = ContextAdapter(context, METHODS[method].rule(configured(form)))
    hidden = queries(0, 6, context)
    log_probs = adapter.predict(hidden)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    assert log_probs.shape == (6, WIDE)
    assert log_probs.dtype is dtype
    assert not log_probs.isnan().any()
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(6, dtype=dtype), atol=tolerance, rtol=0)
    targets = torch.tensor([0, WIDE - 1, 5, 5, 17, WIDE - 3])
    gathered = -log_probs[torch.arange(6), targets]
    assert torch.allclose(adapter.score(hidden, targets), gathered, atol=tolerance, rtol=tolerance)


@every_method
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 1000), entries=st.sampled_from([0, 1, 3, 60]), form=st.sampled_from(["fast", "exact"]),
    bias=st.booleans(),
)  # fmt: skip
def test_probabilities_sum_to_one_whatever_was_observed(
    method: str, seed: int, entries: int, form: str, bias: bool
) -> None:
    context = filled(MEMORIES["flat"], torch.float64, seed=seed, entries=entries, bias=bias)
    rule = METHODS[method].rule(configured(form))
    log_probs = rule.log_probs(context.batch(queries(seed, 4, context)))
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(4, dtype=torch.float64), atol=1e-11, rtol=0)


@every_method
def test_without_observations_every_method_is_the_base(method: str) -> None:
    context = filled(MEMORIES["flat"], entries=0)
    hidden = queries(3, 5, context)
    base = context.head.logits(hidden).log_softmax(1)
    assert torch.allclose(
        ContextAdapter(context, METHODS[method].rule(toy.SETTINGS)).predict(hidden), base, atol=1e-6
    )


@every_memory
@every_form
def test_predict_is_pure_and_the_order_of_methods_is_irrelevant(make: MemoryMaker, form: str) -> None:
    context = filled(make)
    rules = {
        method: METHODS[method].rule(replace(toy.LEARNED, mbpa=configured(form).mbpa)) for method in RULES
    }
    context.learn_shares(rules.values())
    context.observe(queries(9, 6, context), torch.arange(6))  # something is learned
    hidden = queries(1, 6, context)
    kept = hidden.clone()
    before = state_of(context)
    alone = {method: rule.log_probs(context.batch(hidden.clone())) for method, rule in rules.items()}
    copies = {method: values.clone() for method, values in alone.items()}
    for order in (list(RULES), list(reversed(RULES))):
        shared = context.batch(hidden.clone())
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
    adapter = ContextAdapter(context, METHODS[method].rule(config))
    hidden, labels = toy.randn(5, 30, toy.DIM), torch.arange(WIDE - 40, WIDE - 10)  # old and new classes
    start = state_of(context)
    fresh = adapter.predict(hidden[:5]).clone()
    adapter.update(hidden, labels)
    learnt = adapter.predict(hidden[:5]).clone()
    assert torch.equal(learnt, fresh) == (method == "lstm"), "only the base ignores what was observed"
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
    context.observe(toy.randn(2, 40, toy.DIM), torch.zeros(40, dtype=torch.int64))
    context.reset()
    after = context.memory.search(toy.randn(1, 3, toy.DIM), 9)
    assert len(context.memory) == length
    assert torch.equal(near.keys, after.keys)
    assert torch.equal(near.values, after.values)
    assert int(context.observed.sum()) == len(context.recent.latest(99)[1]) == 0


@every_method
@every_memory
@every_form
def test_rows_scored_together_or_alone_are_the_same(method: str, make: MemoryMaker, form: str) -> None:
    context = filled(make)
    rule = METHODS[method].rule(configured(form))
    hidden = queries(2, 7, context)
    together = rule.log_probs(context.batch(hidden))
    alone = torch.cat([rule.log_probs(context.batch(row[None])) for row in hidden])
    padded = rule.log_probs(context.batch(torch.cat([hidden, torch.zeros(3, toy.DIM), hidden.flip(0)])))[:7]
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together, padded, atol=1e-5)


@every_method
def test_the_answer_is_only_looked_up(method: str) -> None:
    context = filled(MEMORIES["flat"])
    adapter = ContextAdapter(context, METHODS[method].rule(toy.SETTINGS))
    hidden = queries(4, 6, context)
    repeated = hidden[:1].expand(WIDE, -1).contiguous()
    every_answer = adapter.score(repeated, torch.arange(WIDE))  # each class as the answer to one query
    shuffled = torch.randperm(WIDE, generator=torch.Generator().manual_seed(0))
    assert torch.equal(adapter.score(repeated, shuffled), every_answer[shuffled])
    assert float((-every_answer).exp().sum()) == pytest.approx(1, abs=1e-4)


def weightless() -> MethodSettings:
    return replace(
        toy.SETTINGS,
        cache=CacheConfig(30, 0.7, 0.0), knn=KnnConfig(0.5, 0.0), mixture=MixtureConfig(0.8, 0.0),
        mbpa=replace(toy.SETTINGS.mbpa, lr=0.0), mbpa_absolute=MbpaAbsoluteConfig(lr=0.0),
        mbpa_guarded=MbpaGuardedConfig(lr=0.0),
        hebb=replace(toy.SETTINGS.hebb, eta=0.0),
        mixture_gated=replace(toy.SETTINGS.mixture_gated, bias=-1e4),
        hebb_learned=replace(toy.SETTINGS.hebb_learned, eta=0.0),
        mixture_cache=replace(toy.SETTINGS.mixture_cache, gamma=0.0), dynamic_mixture=DynamicMixtureConfig(0.8, 0.0),
        dynamic_mixture_cache=replace(toy.SETTINGS.dynamic_mixture_cache, gamma=0.0),
        best=BestConfig(parts="base", rate=0.0),
    )  # fmt: skip


@every_method
@both_dtypes
def test_with_every_share_and_rate_at_zero_each_method_is_the_base(method: str, dtype: torch.dtype) -> None:
    context = filled(MEMORIES["flat"], dtype)
    hidden = queries(6, 6, context)
    base = context.head.logits(hidden).log_softmax(1)
    found = ContextAdapter(context, METHODS[method].rule(weightless())).predict(hidden)
    if "+" in method:  # an interpolation of two equal distributions
        assert torch.allclose(found, base, atol=1e-6 if dtype is torch.float32 else 1e-13)
    else:
        assert torch.equal(found, base)


@pytest.mark.parametrize(
    ("form", "scale"), [("linear", "relative"), ("linear", "absolute"), ("logit-sum", "absolute")]
)
def test_gamma_zero_is_the_base_in_both_forms_of_mixture(form: str, scale: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(7, 6, context)
    config = replace(toy.SETTINGS, mixture=MixtureConfig(0.8, 0.0, form, scale))  # type: ignore[arg-type]
    found = ContextAdapter(context, METHODS["mixture"].rule(config)).predict(hidden)
    assert torch.equal(found, context.head.logits(hidden).log_softmax(1))


def tempered(method: str, value: float) -> MethodSettings:
    return replace(toy.SETTINGS, tempered=TemperedConfig(**{dotted(method): value}))


@pytest.mark.parametrize("method", [name for name in RULES if hasattr(TemperedConfig(), dotted(name))])
@pytest.mark.parametrize("value", [0.7, 1.4])
def test_a_tempered_method_is_a_power_of_its_distribution(method: str, value: float) -> None:
    context = filled(MEMORIES["flat"], torch.float64)
    hidden = queries(9, 6, context)
    plain = ContextAdapter(context, METHODS[method].rule(toy.SETTINGS)).predict(hidden)
    adapter = ContextAdapter(context, METHODS[method].rule(tempered(method, value)))
    found = adapter.predict(hidden)
    power = plain.exp() ** (1 / value)
    assert torch.allclose(found.exp(), power / power.sum(1, keepdim=True), atol=1e-12)
    assert torch.allclose(found.exp().sum(1), torch.ones(6, dtype=torch.float64), atol=1e-12)
    targets = torch.tensor([0, WIDE - 1, 5, 5, 17, WIDE - 3])
    assert torch.allclose(adapter.score(hidden, targets), -found[torch.arange(6), targets], atol=1e-12)
    other = ContextAdapter(
        context, METHODS["knn" if method != "knn" else "mbpa"].rule(tempered(method, value))
    )
    assert isinstance(adapter.rule, Tempered)
    assert not isinstance(other.rule, Tempered), "the temperature is that of one method"


@pytest.mark.parametrize("method", RULES)
def test_a_temperature_of_one_is_none(method: str) -> None:
    if hasattr(TemperedConfig(), dotted(method)):
        assert METHODS[method].rule(tempered(method, 1.0)) == METHODS[method].rule(toy.SETTINGS)
    assert not isinstance(METHODS[method].rule(toy.SETTINGS), Tempered)


def test_the_cache_over_mixture_takes_its_share_of_the_whole() -> None:
    context = filled(MEMORIES["flat"], torch.float64)
    hidden = queries(10, 6, context)
    config = toy.SETTINGS.mixture_cache
    ours = CacheConfig(config.window, config.theta, 1.0)
    cache = ContextAdapter(context, METHODS["cache"].rule(replace(toy.SETTINGS, cache=ours))).predict(hidden)
    mixture = ContextAdapter(context, METHODS["mixture"].rule(toy.SETTINGS)).predict(hidden)
    found = ContextAdapter(context, METHODS["mixture+cache"].rule(toy.SETTINGS)).predict(hidden)
    expected = config.gamma * cache.exp() + (1 - config.gamma) * mixture.exp()
    assert torch.allclose(found.exp(), expected, atol=1e-13)


@pytest.mark.parametrize(("whole", "other"), [("mixture+mbpa", "mbpa"), ("mixture+hebb", "hebb")])
def test_a_combination_at_its_ends_is_one_of_its_parts(whole: str, other: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(8, 6, context)
    for weight, part in ((0.0, other), (1.0, "mixture")):
        ends = replace(
            toy.SETTINGS, mixture_mbpa=MixtureMbpaConfig(weight), mixture_hebb=MixtureHebbConfig(weight)
        )
        found = ContextAdapter(context, METHODS[whole].rule(ends)).predict(hidden)
        assert torch.equal(found, ContextAdapter(context, METHODS[part].rule(ends)).predict(hidden))


def evaluated(
    ids: np.ndarray, make: MemoryMaker, *, lr: float = 0.0, config: MethodSettings = toy.SETTINGS
) -> Scores:
    """Score a stream by every method, with a vocabulary so wide that the fast form leaves classes out."""
    ids = np.where(ids < toy.SOURCE, ids, ids + WIDE - toy.SOURCE)
    stream = toy.stream_of(ids, words=WIDE + toy.NOVEL, source=WIDE)
    base = toy.base_of(toy.tiny_model(vocabulary=WIDE), lr=lr)
    context = toy.context_of(base, make(torch.float32), stream)
    rules = {method: METHODS[method].rule(config) for method in RULES}
    return evaluate(base, context, rules, stream, UnionVocabulary(), update_every=20, read_ahead=lr == 0)


@every_memory
@pytest.mark.parametrize("lr", [0.0, 0.5], ids=["fixed", "moving"])
@pytest.mark.parametrize("kind", ["calm", "diverging", "learned"])
def test_later_tokens_leave_earlier_scores_bit_identical(make: MemoryMaker, lr: float, kind: str) -> None:
    """Within an interval too: a score depends on nothing that comes after it."""
    hot, config = kind == "diverging", toy.LEARNED if kind == "learned" else toy.SETTINGS
    if hot:
        config = replace(
            config, mbpa_absolute=MbpaAbsoluteConfig(lr=30.0), mbpa_guarded=MbpaGuardedConfig(lr=30.0)
        )
    for change in (33, 100):
        first, second = toy.tokens(1, 120), toy.tokens(1, 120)
        second[change:] = toy.tokens(2, 120)[change:]
        second[change] = (first[change] + 1) % toy.WORDS
        before, after = (evaluated(ids, make, lr=lr, config=config) for ids in (first, second))
        for method in RULES:
            assert np.array_equal(before.nll[method][:change], after.nll[method][:change]), (method, change)
            assert before.nll[method][change] != after.nll[method][change], method
        assert (before.stabilized["mbpa-guarded"] > 0) >= hot


def test_reading_ahead_and_the_length_of_the_stream_change_nothing() -> None:
    ids = toy.tokens(3, 2 * READ_AHEAD + 37)
    stream = toy.stream_of(ids)
    rules = {method: METHODS[method].rule(toy.SETTINGS) for method in RULES}

    def run(stream_length: int, ahead: bool) -> dict[str, np.ndarray]:
        part = toy.stream_of(ids[:stream_length])
        base = toy.base_of(toy.tiny_model())
        context = toy.context_of(base, FlatMemory(toy.DIM), part)
        return evaluate(base, context, rules, part, UnionVocabulary(), update_every=30, read_ahead=ahead).nll

    ahead, step, short = run(len(stream), True), run(len(stream), False), run(150, True)
    for method in RULES:
        np.testing.assert_allclose(ahead[method], step[method], atol=1e-5)
        np.testing.assert_allclose(ahead[method][:150], short[method], atol=1e-5)


def test_methods_differ_from_each_other() -> None:
    """Else nothing above would mean much."""
    nll = evaluated(toy.tokens(4, 300), MEMORIES["flat"]).nll
    same = (
        {"hebb-literal", "hebb"},  # differ by the MbPA change of classes without a Hebbian term alone
        {"best", "dynamic+best"},  # differ by the base, which stays here
    )
    for first, second in itertools.combinations(RULES, 2):
        if {first, second} not in same:
            assert np.abs(nll[first] - nll[second]).max() > 1e-4, (first, second)
    assert not np.array_equal(nll["hebb"], nll["hebb-literal"])
