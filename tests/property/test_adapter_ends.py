"""Each method at the ends of its settings: shares and rates of zero, combinations of one part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.best import BestConfig
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.combine import MixtureHebbConfig, MixtureMbpaConfig
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.settings import MethodSettings

from ..support import toy
from ..support.adapters import MEMORIES, ContextAdapter, both_dtypes, every_method, filled, queries


def weightless() -> MethodSettings:
    return toy.SETTINGS.replaced(
        CacheConfig(30, 0.7, 0.0), KnnConfig(0.5, 0.0), MixtureConfig(0.8, 0.0),
        replace(toy.SETTINGS[MbpaConfig], lr=0.0), MbpaAbsoluteConfig(lr=0.0),
        replace(toy.SETTINGS[HebbConfig], eta=0.0),
        BestConfig(parts="base", lr=0.0),
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


@pytest.mark.parametrize(("whole", "other"), [("mixture+mbpa", "mbpa"), ("mixture+hebb", "hebb")])
def test_a_combination_at_its_ends_is_one_of_its_parts(whole: str, other: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(8, 6, context)
    for weight, part in ((0.0, other), (1.0, "mixture")):
        ends = toy.SETTINGS.replaced(MixtureMbpaConfig(weight), MixtureHebbConfig(weight))
        found = ContextAdapter(context, METHODS[whole].rule(ends)).predict(hidden)
        assert torch.equal(found, ContextAdapter(context, METHODS[part].rule(ends)).predict(hidden))
