"""Each method at the ends of its settings: shares and rates of zero, combinations of one part."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from hebblm.adapt.methods import METHODS, SECTIONS
from hebblm.adapt.methods.best import BestConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.predictor import dotted
from hebblm.adapt.settings import MethodSettings, Section

from ..support import toy
from ..support.adapters import MEMORIES, adapter_of, both_dtypes, every_method, filled, queries

COMBINED = [name for name, method in METHODS.items() if len(method.parts) == 2]


def off(section: Section) -> Section:
    """The same with its share and its rates at zero."""
    values = {field.name: getattr(section, field.name) for field in fields(section) if field.init}
    rates = {
        name for name, value in values.items() if name in ("lr", "eta") and isinstance(value, float)
    }
    return replace(section, **dict.fromkeys(rates | values.keys() & {"gamma"}, 0.0))


def weightless() -> MethodSettings:
    sections = (off(toy.SETTINGS[kind]) for kind in SECTIONS.values())
    return MethodSettings(*sections).replaced(BestConfig(parts="base", lr=0.0))


@every_method
@both_dtypes
def test_with_every_share_and_rate_at_zero_each_method_is_the_base(
    method: str, dtype: torch.dtype
) -> None:
    if method == "ngram":
        pytest.skip("its gate starts from shares of its own")
    context = filled(MEMORIES["flat"], dtype)
    hidden = queries(6, 6, context)
    base = context.head.logits(hidden).log_softmax(1)
    found = adapter_of(context, METHODS[method].predictor(weightless())).predict(hidden)
    if method in COMBINED:  # an interpolation of two equal distributions
        assert torch.allclose(found, base, atol=1e-6 if dtype is torch.float32 else 1e-13)
    else:
        assert torch.equal(found, base)


@pytest.mark.parametrize(
    ("form", "scale"), [("linear", "relative"), ("linear", "absolute"), ("logit-sum", "absolute")]
)
def test_gamma_zero_is_the_base_in_both_forms_of_mixture(form: str, scale: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(7, 6, context)
    config = toy.SETTINGS.replaced(MixtureConfig(0.8, 0.0, form, scale))  # type: ignore[arg-type]
    found = adapter_of(context, METHODS["mixture"].predictor(config)).predict(hidden)
    assert torch.equal(found, context.head.logits(hidden).log_softmax(1))


@pytest.mark.parametrize("whole", COMBINED)
def test_a_combination_at_its_ends_is_one_of_its_parts(whole: str) -> None:
    context = filled(MEMORIES["flat"])
    hidden = queries(8, 6, context)
    (own,) = (kind for kind in METHODS[whole].settings if kind.section == dotted(whole))
    for weight, part in zip((1.0, 0.0), METHODS[whole].parts, strict=True):
        ends = toy.SETTINGS.replaced(own(weight))  # type: ignore[call-arg]
        found = adapter_of(context, METHODS[whole].predictor(ends)).predict(hidden)
        assert torch.equal(
            found, adapter_of(context, METHODS[part].predictor(ends)).predict(hidden)
        )
