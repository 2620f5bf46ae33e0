"""Each method at the ends of its settings: shares and rates of zero, temperatures, combinations of one part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.best import BestConfig
from hebblm.adapt.methods.cache import CacheConfig, MixtureCacheConfig
from hebblm.adapt.methods.combine import MixtureHebbConfig, MixtureMbpaConfig, Tempered
from hebblm.adapt.methods.dynamic import DynamicMixtureCacheConfig, DynamicMixtureConfig
from hebblm.adapt.methods.gated import MixtureGatedConfig
from hebblm.adapt.methods.hebb import HebbConfig, HebbLearnedConfig
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig, MbpaGuardedConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.rule import dotted
from hebblm.adapt.settings import MethodSettings, TemperedConfig

from ..support import toy
from ..support.adapters import MEMORIES, RULES, WIDE, ContextAdapter, both_dtypes, every_method, filled, queries


def weightless() -> MethodSettings:
    return toy.SETTINGS.replaced(
        CacheConfig(30, 0.7, 0.0), KnnConfig(0.5, 0.0), MixtureConfig(0.8, 0.0),
        replace(toy.SETTINGS[MbpaConfig], lr=0.0), MbpaAbsoluteConfig(lr=0.0),
        MbpaGuardedConfig(lr=0.0),
        replace(toy.SETTINGS[HebbConfig], eta=0.0),
        replace(toy.SETTINGS[MixtureGatedConfig], bias=-1e4),
        replace(toy.SETTINGS[HebbLearnedConfig], eta=0.0),
        replace(toy.SETTINGS[MixtureCacheConfig], gamma=0.0), DynamicMixtureConfig(0.8, 0.0),
        replace(toy.SETTINGS[DynamicMixtureCacheConfig], gamma=0.0),
        BestConfig(parts="base", rate=0.0),
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


@pytest.mark.parametrize(("form", "scale"), [("linear", "relative"), ("linear", "absolute"), ("logit-sum", "absolute")])
def test_gamma_zero_is_the_base_in_both_forms_of_mixture(form: str, scale: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(7, 6, context)
    config = toy.SETTINGS.replaced(MixtureConfig(0.8, 0.0, form, scale))  # type: ignore[arg-type]
    found = ContextAdapter(context, METHODS["mixture"].rule(config)).predict(hidden)
    assert torch.equal(found, context.head.logits(hidden).log_softmax(1))


def tempered(method: str, value: float) -> MethodSettings:
    return toy.SETTINGS.replaced(TemperedConfig(**{dotted(method): value}))


@pytest.mark.parametrize(
    "method", [name for name in (*RULES, "dynamic+best") if hasattr(TemperedConfig(), dotted(name))]
)
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
    other = ContextAdapter(context, METHODS["knn" if method != "knn" else "mbpa"].rule(tempered(method, value)))
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
    config = toy.SETTINGS[MixtureCacheConfig]
    ours = CacheConfig(config.window, config.theta, 1.0)
    cache = ContextAdapter(context, METHODS["cache"].rule(toy.SETTINGS.replaced(ours))).predict(hidden)
    mixture = ContextAdapter(context, METHODS["mixture"].rule(toy.SETTINGS)).predict(hidden)
    found = ContextAdapter(context, METHODS["mixture+cache"].rule(toy.SETTINGS)).predict(hidden)
    expected = config.gamma * cache.exp() + (1 - config.gamma) * mixture.exp()
    assert torch.allclose(found.exp(), expected, atol=1e-13)


@pytest.mark.parametrize(("whole", "other"), [("mixture+mbpa", "mbpa"), ("mixture+hebb", "hebb")])
def test_a_combination_at_its_ends_is_one_of_its_parts(whole: str, other: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(8, 6, context)
    for weight, part in ((0.0, other), (1.0, "mixture")):
        ends = toy.SETTINGS.replaced(MixtureMbpaConfig(weight), MixtureHebbConfig(weight))
        found = ContextAdapter(context, METHODS[whole].rule(ends)).predict(hidden)
        assert torch.equal(found, ContextAdapter(context, METHODS[part].rule(ends)).predict(hidden))
