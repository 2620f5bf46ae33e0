"""Shares learned online beside a slow reference: the formula over all tokens scored before, in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt.functional.shares import LearnedShare
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.memory_mixture import Interpolated
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.rule import Needs, Rule
from hebblm.adapt.section import ONLINE, Section
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory

from ..support import toy

LEARNED = MethodSettings(
    replace(toy.SETTINGS[CacheConfig], gamma=ONLINE),
    replace(toy.SETTINGS[KnnConfig], gamma=ONLINE),
    replace(toy.SETTINGS[MixtureConfig], gamma=ONLINE),
)
WHOLE: dict[str, type[Section]] = {"cache": CacheConfig, "knn": KnnConfig, "mixture": MixtureConfig}


def scored(rules: dict[str, Rule], every: int, *, ahead: bool) -> dict[str, np.ndarray]:
    """Return the losses of a stream in which states and labels recur."""
    stream = toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(1, 40)]))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    nll = evaluate(base, [context], rules, stream, UnionVocabulary(), update_every=every, read_ahead=ahead).nll
    return {name: losses.astype(np.float64) for name, losses in nll.items()}


def reference(first: np.ndarray, second: np.ndarray, every: int) -> np.ndarray:
    """Return the loss of the mixture of two distributions, each share summed anew over all tokens before."""
    losses = np.empty(len(first))
    owned: list[float] = []  # r_t of each token that either knew
    for start in range(0, len(first), every):
        discounts = 0.996 ** np.arange(len(owned) - 1, -1, -1)
        share = (10 * 0.3 + discounts @ np.array(owned)) / (10 + discounts.sum())
        for t in range(start, min(start + every, len(first))):
            p, q = np.exp(-first[t]), np.exp(-second[t])
            losses[t] = -np.log(share * p + (1 - share) * q) if p + q else np.inf
            if p + q:
                owned.append(share * p / (share * p + (1 - share) * q))
    return losses


@pytest.mark.parametrize("ahead", [True, False], ids=["blocks", "intervals"])
@pytest.mark.parametrize("every", [1, 7, 100])
def test_losses_are_those_of_the_formula(every: int, ahead: bool) -> None:
    rules = {name: METHODS[name].rule(LEARNED) for name in WHOLE}
    alone = {
        section: METHODS[section].rule(LEARNED.replaced(replace(LEARNED[kind], gamma=1.0)))
        for section, kind in WHOLE.items()
    }
    both = Interpolated(rules["mixture"], alone["knn"], ONLINE)
    found = scored(
        {
            "base": Unadapted(),
            "both": both,
            **rules,
            **{f"{name} alone": rule for name, rule in alone.items()},
        },
        every,
        ahead=ahead,
    )
    for name in WHOLE:
        expected = reference(found[f"{name} alone"], found["base"], every)
        np.testing.assert_allclose(found[name], expected, atol=2e-6, err_msg=name)
        if every == 1:
            assert np.abs(found[name] - found["base"]).max() > 0.1, name
    expected = reference(found["mixture"], found["knn alone"], every)
    np.testing.assert_allclose(found["both"], expected, atol=2e-6)


def test_a_sharpness_that_is_learned_mixes_two_memories() -> None:
    online = LEARNED.replaced(replace(LEARNED[MixtureConfig], theta=ONLINE, gamma=0.4))
    rules = {
        f"{theta}": METHODS["mixture"].rule(online.replaced(replace(online[MixtureConfig], theta=theta, gamma=1.0)))
        for theta in (2.0, 0.6)
    }
    rules |= {"base": Unadapted(), "online": METHODS["mixture"].rule(online)}
    found = scored(rules, 5, ahead=True)
    with np.errstate(invalid="ignore"):
        memory = reference(found["2.0"], found["0.6"], 5)
    memory[np.isinf(found["0.6"])] = np.inf
    expected = -np.log(0.4 * np.exp(-memory) + 0.6 * np.exp(-found["base"]))
    np.testing.assert_allclose(found["online"], expected, atol=2e-6)


def test_a_share_follows_what_predicts_and_stays_within_its_bounds() -> None:
    share = LearnedShare()
    assert share.value == pytest.approx(0.3)
    sure = share.after([np.inf] * 2000)
    never = share.after([-np.inf] * 2000)
    assert 0 < never.value < 0.02
    assert 0.95 < sure.value < 1
    assert sure.after([-np.inf] * 300).value < 0.4, "the past is forgotten"
    assert share.after([np.nan] * 5) == share
    assert share.after([-1e300, 1e300]).value == pytest.approx((3 + 1) / (10 + 0.996 + 1), rel=1e-12)


def test_a_context_refuses_a_share_that_it_does_not_learn() -> None:
    stream = toy.stream_of(toy.tokens(1, 9))
    context = toy.context_of(toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM), stream)
    rule = METHODS["cache"].rule(LEARNED)
    with pytest.raises(ValueError, match="learn_shares"):
        rule.log_probs(context.batch(toy.randn(1, 2, toy.DIM)))
    assert rule.needs == Needs(window=LEARNED[CacheConfig].window, shares=(rule,))
