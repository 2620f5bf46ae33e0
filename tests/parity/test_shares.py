"""Shares learned online beside a slow reference: the formula over all tokens scored before, in
double precision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.counts import class_weights
from hebblm.adapt.functional.mixture_weights import LearnedWeight, OnlineMixtureWeights
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.hebb import HebbConfig, hebbian_term
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig, mbpa_result
from hebblm.adapt.methods.memory_mixture import SHARPNESS, Mixed
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.predictor import Predictor, Requirements
from hebblm.adapt.settings import ONLINE, MethodSettings, Section
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory

from ..support import toy

LEARNED = MethodSettings(
    replace(toy.SETTINGS[CacheConfig], gamma=ONLINE),
    replace(toy.SETTINGS[KnnConfig], gamma=ONLINE),
    replace(toy.SETTINGS[MixtureConfig], gamma=ONLINE),
)
WHOLE: dict[str, type[Section]] = {"cache": CacheConfig, "knn": KnnConfig, "mixture": MixtureConfig}


def scored(predictors: dict[str, Predictor], every: int, *, ahead: bool) -> dict[str, np.ndarray]:
    """Return the losses of a stream in which states and labels recur."""
    stream = toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(1, 40)]))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    nll = evaluate(
        base, [context], predictors, stream, UnionVocabulary(), Schedule(every, read_ahead=ahead)
    ).nll
    return {name: losses.astype(np.float64) for name, losses in nll.items()}


def reference(parts: list[np.ndarray], every: int, total: float | None = None) -> np.ndarray:
    """Return the loss of the mixture of distributions, the shares summed anew over all tokens
    before.
    """
    given = np.exp(-np.stack(parts, 1))  # (T, C)
    mixture = np.empty(len(given))
    owned = [np.zeros(len(parts))] * 0  # r_t of each token that any part knew
    for start in range(0, len(given), every):
        discounts = 0.996 ** np.arange(len(owned) - 1, -1, -1)
        sums = discounts @ np.array(owned).reshape(-1, len(parts))
        mixture_weights = (10 * 0.3 / (len(parts) - 1) + sums[:-1]) / (10 + discounts.sum())
        if total is not None:
            mixture_weights *= total / mixture_weights.sum()
        mixture_weights = np.append(mixture_weights, 1 - mixture_weights.sum())
        for t in range(start, min(start + every, len(given))):
            mixture[t] = mixture_weights @ given[t]
            if mixture[t]:
                owned.append(mixture_weights * given[t] / mixture[t])
    with np.errstate(divide="ignore"):
        return -np.log(mixture)


@pytest.mark.parametrize("ahead", [True, False], ids=["blocks", "intervals"])
@pytest.mark.parametrize("every", [1, 7, 100])
def test_losses_are_those_of_the_formula(every: int, ahead: bool) -> None:
    predictors = {name: METHODS[name].predictor(LEARNED) for name in WHOLE}
    alone = {
        section: METHODS[section].predictor(LEARNED.replaced(replace(LEARNED[kind], gamma=1.0)))
        for section, kind in WHOLE.items()
    }
    both = Mixed((predictors["mixture"], alone["knn"]), ONLINE)
    found = scored(
        {
            "base": Unadapted(),
            "both": both,
            **predictors,
            **{f"{name} alone": predictor for name, predictor in alone.items()},
        },
        every,
        ahead=ahead,
    )
    for name in WHOLE:
        expected = reference([found[f"{name} alone"], found["base"]], every)
        np.testing.assert_allclose(found[name], expected, atol=2e-6, err_msg=name)
        if every == 1:
            assert np.abs(found[name] - found["base"]).max() > 0.1, name
    expected = reference([found["mixture"], found["knn alone"]], every)
    np.testing.assert_allclose(found["both"], expected, atol=2e-6)


@pytest.mark.parametrize("gamma", [ONLINE, 0.4])
@pytest.mark.parametrize("every", [5])
@pytest.mark.parametrize("name", WHOLE)
def test_a_sharpness_that_is_learned_mixes_memories(
    name: str, every: int, gamma: float | str
) -> None:
    sharpness = "temperature" if name == "knn" else "theta"

    def predictor(value: float | str, share: float | str) -> Predictor:
        config = replace(LEARNED[WHOLE[name]], **{sharpness: value, "gamma": share})
        return METHODS[name].predictor(LEARNED.replaced(config))

    predictors = {f"{s}": predictor(1 / s if name == "knn" else s, 1.0) for s in SHARPNESS}
    found = scored(
        predictors | {"base": Unadapted(), "online": predictor(ONLINE, gamma)}, every, ahead=True
    )
    total = None if isinstance(gamma, str) else gamma
    expected = reference([*(found[f"{s}"] for s in SHARPNESS), found["base"]], every, total)
    np.testing.assert_allclose(found["online"], expected, atol=2e-6)


def weights(losses: list[np.ndarray], every: int) -> np.ndarray:
    """Return the weight at each token: where a parabola through the summed losses at 1/2, 1 and 3/2
    is lowest.
    """
    found, places = np.empty(len(losses[0])), (0.5, 1.0, 1.5)
    for start in range(0, len(found), every):
        kept = 0.998 ** np.arange(start - 1, -1, -1)
        sums = [kept @ at[:start] for at in losses]
        # What is known beforehand: 20 (s - 1)^2, by its own values at the three places.
        a, b, _ = np.polyfit(
            places, [total + 20 * (s - 1) ** 2 for total, s in zip(sums, places, strict=True)], 2
        )
        found[start : start + every] = np.clip(-b / (2 * a), 0, 1.5)
    return found


@pytest.mark.parametrize("ahead", [True, False], ids=["blocks", "intervals"])
@pytest.mark.parametrize("every", [1, 7, 100])
def test_the_weight_of_mbpa_is_that_of_the_formula(every: int, ahead: bool) -> None:
    at = {w: MbpaConfig(solver="exact", weight=w) for w in (ONLINE, 0.5, 1.0, 1.5)}
    found = scored({str(w): Mbpa(config) for w, config in at.items()}, every, ahead=ahead)
    expected = weights([found["0.5"], found["1.0"], found["1.5"]], every)
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
    mbpa, hebb = MbpaConfig(solver="exact", weight=ONLINE), HebbConfig()
    predictor = METHODS["hebb"].predictor(MethodSettings(mbpa, hebb))
    assert predictor.requirements == Mbpa(mbpa).requirements
    context.learn_mixture_weights([predictor])
    hidden = base.read(torch.from_numpy(stream.inputs))
    for rows in (slice(20), slice(20, 40)):
        toy.observe(context, hidden[rows], torch.from_numpy(stream.targets[rows]))
    batch = EvalBatch(hidden[40:], context)
    (weight,) = {share.value for share in context.mixture_weights.values()}
    assert 0 < weight < 1.5
    assert weight != pytest.approx(1.0)
    expected = functional.hebb_combine(
        batch.logits,
        weight * mbpa_result(batch, mbpa).delta,
        hebbian_term(batch, mbpa, hebb, None),
        class_weights(batch, hebb.beta, hebb.counts)[0],
        eta=hebb.eta,
    )
    torch.testing.assert_close(predictor.log_probs(batch), expected.log_softmax(1))


def test_a_weight_stays_within_its_bounds_and_nothing_infinite_counts() -> None:
    weight = LearnedWeight()
    assert weight.value == pytest.approx(1.0)
    assert weight.after([(1.0, 5.0, 9.0)] * 500).value == 0.0
    assert weight.after([(9.0, 5.0, 1.0)] * 500).value == 1.5
    assert weight.after([(2.0, 1.0, 1.5)] * 500).value == pytest.approx(13 / 12, abs=0.01)
    assert weight.after([(np.inf, 3.0, 9.0), (np.nan,) * 3, (1.0, 1.0, np.inf)]) == weight
    assert LearnedWeight().from_floats(weight.after([(2.0, 1.0, 2.0)]).as_floats) == weight.after(
        [(2.0, 1.0, 2.0)]
    )


def test_a_share_follows_what_predicts_and_stays_within_its_bounds() -> None:
    mixture_weights = OnlineMixtureWeights((0.0,))
    assert mixture_weights.value == pytest.approx((0.3, 0.7))
    sure = mixture_weights.after([(1.0, np.inf)] * 2000)
    never = mixture_weights.after([(np.inf, 1.0)] * 2000)
    assert 0 < never.value[0] < 0.02
    assert 0.95 < sure.value[0] < 1
    assert sure.after([(np.inf, 1.0)] * 300).value[0] < 0.4, "the past is forgotten"
    assert mixture_weights.after([(np.nan, np.nan), (np.inf, np.inf)]) == mixture_weights
    assert mixture_weights.after([(1e300, 0.0), (0.0, 1e300)]).value[0] == pytest.approx(
        (3 + 1) / (10 + 0.996 + 1), rel=1e-12
    )
    assert mixture_weights.from_floats(sure.as_floats) == sure


def test_of_several_memories_that_one_is_learned_which_predicts_where_the_base_does_not() -> None:
    # Where the base is sure, the first is better than the second; that does not matter there.
    evidence = [(3.0, 9.0, 0.0), (9.0, 0.1, 9.0)] * 500
    first, second, base = OnlineMixtureWeights((0.0, 0.0)).after(evidence).value
    assert first < 0.05 < 0.4 < second < base
    half = OnlineMixtureWeights((0.0, 0.0), total=0.5).after(evidence)
    assert half.value == pytest.approx((0.5 - half.value[1], half.value[1], 0.5))
    assert half.value[1] > 0.4
    assert OnlineMixtureWeights((0.0, 0.0), total=0.0).after(evidence).value == (0.0, 0.0, 1.0)


def test_a_context_refuses_a_share_that_it_does_not_learn() -> None:
    stream = toy.stream_of(toy.tokens(1, 9))
    context = toy.context_of(toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM), stream)
    predictor = METHODS["cache"].predictor(LEARNED)
    with pytest.raises(ValueError, match="learn_shares"):
        predictor.log_probs(EvalBatch(toy.randn(1, 2, toy.DIM), context))
    assert predictor.requirements == Requirements(
        window=LEARNED[CacheConfig].window, mixture_weights=(predictor,)
    )


@pytest.mark.parametrize("name", ["cache", "best"])
def test_shares_learn_every_ten_tokens_of_an_interval(name: str) -> None:
    stream = toy.stream_of(np.concatenate([toy.tokens(1, 60), toy.tokens(1, 60)]))
    base = toy.base_of(toy.tiny_model().double())
    predictor = METHODS[name].predictor(LEARNED)
    found = evaluate(
        base,
        [toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)],
        {name: predictor},
        stream,
        UnionVocabulary(),
        Schedule(25, read_ahead=True),
    ).nll[name]

    base.reset()
    hidden, targets = base.read(torch.from_numpy(stream.inputs)), torch.from_numpy(stream.targets)
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    context.learn_mixture_weights([predictor])
    (learner,) = (one for one in context.learners if one is predictor)
    expected: list[float] = []
    for start in range(0, len(stream), 25):
        labels = targets[start : start + 25]
        batch = EvalBatch(hidden[start : start + 25], context, Block.of(labels, 25, written=True))
        said, mixture_weights = learner.evidence(batch, labels), context.mixture_weights[learner]
        for some in torch.split(said, 10):
            if name == "best":
                parts = len(predictor.predictors)
                losses, log_mixture_weights = (
                    some[:, :parts],
                    mixture_weights.log_mixture_weights(some[:, parts:]),
                )
            else:
                losses, log_mixture_weights = (
                    some,
                    torch.tensor([mixture_weights.value], dtype=torch.float64).log(),
                )
            expected += functional.gated_losses(losses, log_mixture_weights).tolist()
            mixture_weights = mixture_weights.after(some.tolist())
        observation = batch.observation(labels)
        assert observation.mixture_weights[0][learner].as_floats == pytest.approx(
            mixture_weights.as_floats, abs=1e-9
        )
        context.observe(observation)
        context.count_ngrams(observation)
    np.testing.assert_allclose(found, expected, atol=1e-5)
