from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import (
    DEFAULT_METHODS,
    METHODS,
    OUR_METHODS,
    PAPER_METHODS,
    PUBLISHED,
    check_methods,
    named,
)
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.hebb import Hebb, HebbConfig
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig
from hebblm.adapt.methods.predictor import Requirements, dotted
from hebblm.adapt.settings import MethodSettings, changed
from hebblm.errors import UserError
from hebblm.memory import FlatMemory

from ...support import toy
from ...support.adapters import adapter_of


def observed_context(novel: bool = True) -> Context:
    stream = toy.stream_of(toy.tokens(0, 10))
    context = toy.context_of(
        toy.base_of(toy.tiny_model().double()),
        FlatMemory(toy.DIM, dtype=torch.float64),
        stream,
        novel=novel,
    )
    labels = torch.tensor([2, 2, 26, 26, 27, 3, 2, 5, 28, 2, 1, 26])
    toy.observe(context, toy.randn(1, 12, toy.DIM, dtype=torch.float64), labels)
    return context


def equation(
    context: Context, hidden: Tensor, hebb: HebbConfig, mbpa: MbpaConfig, /, **options: Any
) -> Tensor:
    """Return log-probabilities (N, V) by Hebb's equation."""
    return F.hebb_logits(
        hidden, context.memory.search(hidden, context.k), context.head, lr=mbpa.lr,
        steps=mbpa.steps, eta=hebb.eta,
        beta=hebb.beta, counts=context.train_counts + context.observed, eps=mbpa.eps,
        scale=hebb.scale,
        lr_units=mbpa.lr_units, **options,
    ).log_softmax(1)  # fmt: skip


def test_the_named_sets_are_the_papers_methods_and_with_them_the_baselines() -> None:
    assert PAPER_METHODS == ("lstm", "mixture", "mbpa", "hebb", "mixture+mbpa", "mixture+hebb")
    assert {*PUBLISHED} == {*PAPER_METHODS, "dynamic", "cache", "knn"}
    assert (*PUBLISHED, "best") == DEFAULT_METHODS


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["lstm", "hebbian"], "'hebbian'.*mixture.hebb"),
        (["lstm", "lstm"], "lstm,lstm.*once"),
        ([], "at least one"),
    ],
)
def test_unknown_repeated_or_missing_methods_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_methods(names)


def test_all_stands_for_the_default_methods_and_those_beyond_the_paper() -> None:
    assert named("all") == [*PUBLISHED, *OUR_METHODS]
    assert named(" lstm , mixture+hebb") == ["lstm", "mixture+hebb"]
    with pytest.raises(UserError, match=r"'all'.*or all alone"):
        named("lstm,all")


@pytest.mark.parametrize(
    ("variant", "arguments"),
    [
        ("hebb", {}),
        ("hebb-v1", {"mbpa": False}),
        ("hebb-v2", {"hebbian_classes": None}),
        ("hebb-v3", {"weighting": 0.3}),
        ("hebb-literal", {"gate": "literal"}),
    ],
)
@pytest.mark.parametrize("scale", ["relative", "absolute"])
def test_every_variant_is_the_equation_it_is_named_after(
    variant: str, arguments: dict[str, object], scale: F.Scale
) -> None:
    context = observed_context()
    hebb = replace(toy.SETTINGS[HebbConfig], constant=0.3, scale=scale)
    mbpa = replace(toy.SETTINGS[MbpaConfig], solver="exact", scale=scale)
    settings = toy.SETTINGS.replaced(hebb, mbpa)
    hidden = toy.randn(9, 4, toy.DIM, dtype=torch.float64)
    expected = equation(
        context, hidden, hebb, mbpa, **{"hebbian_classes": context.new_classes, **arguments}
    )
    found = adapter_of(context, METHODS[variant].predictor(settings)).predict(hidden)
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("classes", "novel", "all_of_them"),
    [("auto", True, False), ("auto", False, True), ("new", True, False), ("all", True, True)],
)
def test_n_new_is_the_new_words_where_there_are_any(
    classes: str, novel: bool, all_of_them: bool
) -> None:
    context = observed_context(novel=novel)
    hebb = replace(toy.SETTINGS[HebbConfig], classes=classes)  # type: ignore[arg-type]
    mbpa = toy.exact(toy.SETTINGS)[MbpaConfig]
    hidden = toy.randn(9, 4, toy.DIM, dtype=torch.float64)
    found = adapter_of(context, Hebb(hebb, mbpa)).predict(hidden)
    new = torch.arange(toy.WORDS) >= toy.SOURCE
    over_all, over_new = (
        equation(context, hidden, hebb, mbpa, hebbian_classes=which) for which in (None, new)
    )
    assert not torch.allclose(over_all, over_new, atol=1e-3)
    assert torch.allclose(found, over_all if all_of_them else over_new, atol=1e-12)


def test_a_result_names_the_settings_that_a_method_depends_on() -> None:
    every = toy.SETTINGS
    assert METHODS["lstm"].hyperparameters(every) == {}
    assert METHODS["cache"].hyperparameters(every) == asdict(every[CacheConfig])
    assert set(METHODS["mixture+hebb"].hyperparameters(every)) == {
        "mixture",
        "mbpa",
        "hebb",
        "mixture_hebb",
    }
    assert set(METHODS["hebb-v2"].hyperparameters(every)) == {"mbpa", "hebb"}
    for method in METHODS:
        METHODS[method].hyperparameters(every)


def test_every_section_of_the_settings_is_of_a_method_that_says_what_is_tried() -> None:
    sections = {kind.section: kind for method in METHODS.values() for kind in method.settings}
    assert set(sections) <= {dotted(name) for name in METHODS}
    for name, method in METHODS.items():
        if method.search_space is not None:
            own = sections[dotted(name)]()
            for key, values in method.search_space(MethodSettings(), Grid()).items():
                assert all(changed(dotted(name), own, {key: value}) for value in values), (
                    f"{name}.{key}"
                )


def test_mbpa_at_an_absolute_rate_has_values_of_its_own() -> None:
    name, own = "mbpa-absolute", MbpaAbsoluteConfig(lr=0.07, steps=2, eps=0.01)
    settings = toy.exact(toy.SETTINGS).replaced(own)
    context = observed_context()
    hidden = toy.randn(9, 4, toy.DIM, dtype=torch.float64)
    near = context.memory.search(hidden, context.k)
    expected = F.mbpa_logits(
        hidden, near, context.head, **asdict(own), lr_units="absolute"
    ).log_softmax(1)
    found = adapter_of(context, METHODS[name].predictor(settings)).predict(hidden)
    assert torch.allclose(found, expected, atol=1e-12)
    other = settings.replaced(replace(settings[MbpaConfig], lr=1.0, steps=1, eps=0.5))
    assert METHODS[name].predictor(settings) == METHODS[name].predictor(other)
    assert set(METHODS[name].hyperparameters(settings)) == {own.section, "mbpa"}
    assert name in named("all")


def test_the_window_is_the_longest_that_is_looked_back_at() -> None:
    every = toy.SETTINGS.replaced(CacheConfig(window=7))
    for name, window in (("lstm", 0), ("hebb", 0), ("cache", 7), ("best", 30)):
        assert METHODS[name].predictor(every).requirements.window == window
    assert (Requirements(window=7) | Requirements(True, 9)) == Requirements(True, 9)


def test_a_method_needs_what_its_parts_need() -> None:
    for name, method in METHODS.items():
        requirements = method.predictor(toy.SETTINGS).requirements
        for part in method.parts:
            of_part = METHODS[part].predictor(toy.SETTINGS).requirements
            assert requirements | replace(of_part, mixture_weights=()) == requirements, (name, part)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_asks_for_nothing_that_it_does_not_say_it_needs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, predictor = observed_context(), METHODS[name].predictor(toy.SETTINGS)
    context.learn_mixture_weights([predictor])
    asked: list[str] = []
    find = context.memory.find
    monkeypatch.setattr(
        context.memory, "find", lambda *given: asked.append("retrieval") or find(*given)
    )
    predictor.log_probs(EvalBatch(toy.randn(9, 4, toy.DIM, dtype=torch.float64), context))
    assert bool(asked) == predictor.requirements.retrieval


def test_settings_hold_the_last_section_of_a_kind_and_the_default_of_any_other() -> None:
    last = MethodSettings(MbpaConfig(l2_to_base=0.1)).replaced(
        MbpaConfig(l2_to_base=0.2), HebbConfig()
    )
    assert last[MbpaConfig].l2_to_base == 0.2
    assert last == MethodSettings(MbpaConfig(l2_to_base=0.2))
    assert last[HebbConfig] == HebbConfig()
