"""Shares learned online beside a slow reference: the formula over all tokens scored before, in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.counts import class_weights
from hebblm.adapt.functional.shares import LearnedShare, LearnedWeight
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_term
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig, mbpa_result
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


def weights(base: np.ndarray, half: np.ndarray, whole: np.ndarray, every: int) -> np.ndarray:
    """Return the weight at each token: where a parabola through the summed losses at 0, 1/2 and 1 is lowest."""
    found = np.empty(len(base))
    for start in range(0, len(base), every):
        kept = 0.998 ** np.arange(start - 1, -1, -1)
        sums = [kept @ losses[:start] for losses in (base, half, whole)]
        # What is known beforehand: 10 (s - 0.8)^2, by its own values at the three places.
        a, b, _ = np.polyfit(
            [0, 0.5, 1], [total + 10 * (s - 0.8) ** 2 for total, s in zip(sums, (0, 0.5, 1), strict=True)], 2
        )
        found[start : start + every] = np.clip(-b / (2 * a), 0, 1)
    return found


@pytest.mark.parametrize("ahead", [True, False], ids=["blocks", "intervals"])
@pytest.mark.parametrize("every", [1, 7, 100])
def test_the_weight_of_mbpa_is_that_of_the_formula(every: int, ahead: bool) -> None:
    at = {w: MbpaConfig(method="exact", weight=w) for w in (ONLINE, 0.5, 1.0)}
    found = scored({"base": Unadapted(), **{str(w): Mbpa(config) for w, config in at.items()}}, every, ahead=ahead)
    expected = weights(found["base"], found["0.5"], found["1.0"], every)
    stream = toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(1, 40)]))
    fixed = {str(w): Mbpa(replace(at[1.0], weight=float(w))) for w in sorted(set(expected))}
    alone = scored(fixed, every, ahead=ahead)
    losses = [alone[str(w)][t] for t, w in enumerate(expected)]
    np.testing.assert_allclose(found["online"], losses, atol=1e-5)
    assert len(stream) == len(losses)
    assert len(set(expected)) > (1 if every < len(losses) else 0)


def test_hebb_takes_the_weighted_change() -> None:
    stream = toy.stream_of(toy.tokens(1, 60))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream, novel=False)
    mbpa, hebb = MbpaConfig(method="exact", weight=ONLINE), HebbConfig()
    rule = METHODS["hebb"].rule(MethodSettings(mbpa, hebb))
    assert rule.needs == Mbpa(mbpa).needs
    context.learn_shares([rule])
    hidden = base.read(torch.from_numpy(stream.inputs))
    for rows in (slice(20), slice(20, 40)):
        context.observe(hidden[rows], torch.from_numpy(stream.targets[rows]))
    batch = context.batch(hidden[40:])
    (weight,) = {share.value for share in context.shares.values()}
    assert 0 < weight < 1
    assert weight != pytest.approx(0.8)
    expected = functional.hebb_combine(
        batch.logits,
        weight * mbpa_result(batch, mbpa).delta,
        hebbian_term(batch, mbpa, hebb, None),
        class_weights(batch, hebb)[0],
        eta=hebb.eta,
    )
    torch.testing.assert_close(rule.log_probs(batch), expected.log_softmax(1))


def test_a_weight_stays_within_its_bounds_and_nothing_infinite_counts() -> None:
    weight = LearnedWeight()
    assert weight.value == pytest.approx(0.8)
    assert weight.after([(1.0, 5.0, 9.0)] * 500).value == 0.0
    assert weight.after([(9.0, 5.0, 1.0)] * 500).value == 1.0
    assert weight.after([(2.0, 1.0, 2.0)] * 500).value == pytest.approx(0.5, abs=0.01)
    assert weight.after([(np.inf, 3.0, 9.0), (np.nan,) * 3, (1.0, 1.0, np.inf)]) == weight
    assert LearnedWeight().recalled(weight.after([(2.0, 1.0, 2.0)]).numbers) == weight.after([(2.0, 1.0, 2.0)])


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
