from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.functional.mixture_weights import OnlineMixtureWeights
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.evaluation.defaults import paper_values
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ...support import equations, toy

CLASSES, K = 30, 9
MIXTURES = ("cache", "knn", "mixture")


def reals(seed: int, *shape: int) -> Tensor:
    return toy.randn(seed, *shape, dtype=torch.float64)


def test_distances_by_hand() -> None:
    distances = torch.tensor(
        [[1.0, 2.0, 6.0], [4.0, torch.inf, torch.inf], [0.0, 0.0, torch.inf], [torch.inf] * 3]
    )
    mask = distances < torch.inf
    expected = torch.tensor([[1 / 3, 2 / 3, 2.0], [1.0, 0, 0], [0, 0, 0], [0, 0, 0]])
    torch.testing.assert_close(F.relative_distances(distances, mask), expected)
    weights = F.kernel_weight(distances, mask, eps=0.5, scale="relative")
    expected = torch.tensor(
        [[1 / (0.5 + 1 / 3), 1 / (0.5 + 2 / 3), 0.4], [1 / 1.5, 0, 0], [2, 2, 0], [0, 0, 0]]
    )
    torch.testing.assert_close(weights, expected)
    largest = F.kernel_weight(distances, mask, eps=0.5, normalization="max", scale="relative")
    torch.testing.assert_close(largest[:, 0], torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert torch.equal(
        F.kernel_weight(distances, mask, eps=0.5, scale="absolute"),
        F.kernel_weight(distances, mask, eps=0.5),
    )
    with pytest.raises(UserError, match=r"scale = 'metric'.*relative, absolute"):
        F.kernel_weight(distances, mask, eps=0.5, scale="metric")  # type: ignore[arg-type]


def test_scores_by_hand() -> None:
    scores = torch.tensor(
        [[1.0, 2.0, 3.0], [5.0, 7.0, 99.0], [5.0, 99.0, 99.0], [99.0, 99.0, 99.0]]
    )
    mask = torch.tensor([[True] * 3, [True, True, False], [True, False, False], [False] * 3])
    found = F.log_weights(scores, mask, sharpness=2.0, scale="relative")
    step = 2 / (2 / 3) ** 0.5
    expected = torch.tensor([[-step, 0, step], [-2.0, 2.0, 0], [0, 0, 0], [0, 0, 0]])
    torch.testing.assert_close(found, expected)
    assert torch.equal(F.log_weights(scores, mask, sharpness=2.0, scale="absolute"), 2 * scores)
    assert F.log_weights(scores[:, :0], mask[:, :0], sharpness=2.0, scale="relative").shape == (
        4,
        0,
    )
    with pytest.raises(UserError, match="scale = 'metric'"):
        F.log_weights(scores, mask, sharpness=2.0, scale="metric")  # type: ignore[arg-type]


@given(st.integers(0, 999), st.floats(0.1, 10), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=60, deadline=None)
def test_a_shift_a_unit_and_rounding_change_no_weight(
    seed: int, unit: float, dtype: torch.dtype
) -> None:
    scores = toy.randn(seed, 3, 8, dtype=dtype)
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[1, seed % 8 :] = False
    plain = F.log_weights(scores, mask, sharpness=1.5, scale="relative")
    tolerance = 1e-3 if dtype is torch.float32 else 1e-9
    torch.testing.assert_close(
        F.log_weights(10 + unit * scores, mask, sharpness=1.5, scale="relative"),
        plain,
        atol=tolerance,
        rtol=0,
    )
    # the same number but for its last digit
    same = 1e3 * unit * (1 + torch.finfo(dtype).eps * scores.sign())
    weights = F.log_weights(same, mask, sharpness=1.5, scale="relative")
    assert weights.abs().max() < 0.1


def context_of(unit: float, entries: int, *, same: bool = False) -> Context:
    """Return a context whose states, in another unit, are those of unit 1; with ``same`` all
    entries are one state.
    """
    head = OutputHead(reals(0, CLASSES, toy.DIM) / unit, None)
    context = Context(
        head,
        FlatMemory(toy.DIM, dtype=torch.float64),
        k=K,
        train_counts=torch.ones(CLASSES, dtype=torch.int64),
        window=20,
    )
    if entries:
        states = unit * reals(2, 1 if same else entries, toy.DIM).expand(entries, -1)
        toy.observe(context, states, torch.arange(entries) * 7 % 5)
    return context


def queries(unit: float) -> Tensor:
    hidden = reals(3, 6, toy.DIM)
    hidden[0] = reals(2, 1, toy.DIM)[0]  # an entry's own state
    return unit * hidden


@pytest.mark.parametrize("unit", [1e-3])
@pytest.mark.parametrize("entries", [0, 1, 60])
@pytest.mark.parametrize("method", [*MIXTURES, "hebb-v1"])
def test_the_unit_of_the_states_changes_nothing(method: str, entries: int, unit: float) -> None:
    """The head is scaled against them, so that the base's logits stay; a bias is a unit and is left
    out.
    """
    predictor = METHODS[method].predictor(MethodSettings())
    targets = torch.tensor([0, 2, 4, 29, 3, 1])
    plain, scaled = context_of(1.0, entries), context_of(unit, entries)
    plain.learn_mixture_weights([predictor])
    scaled.learn_mixture_weights([predictor])
    batches = [
        EvalBatch(queries(of), context, Block.of(targets, 2, written=True))
        for context, of in ((plain, 1.0), (scaled, unit))
    ]
    expected, found = (predictor.log_probs(batch) for batch in batches)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        predictor.score(batches[1], targets),
        predictor.score(batches[0], targets),
        rtol=1e-8,
        atol=1e-8,
    )
    if entries > 1:
        assert (found - batches[1].log_probs).abs().max() > 1e-3


@pytest.mark.parametrize("method", [name for name in STATIC_METHODS if name != "lstm"])
def test_entries_that_are_all_the_querys_own_state_stay_finite(method: str) -> None:
    context = context_of(1.0, 12, same=True)
    batch = EvalBatch(queries(1.0), context)
    predictor = METHODS[method].predictor(MethodSettings())
    context.learn_mixture_weights([predictor])
    log_probs = predictor.log_probs(batch)
    assert not log_probs.isnan().any()
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(6, dtype=torch.float64))
    if method in ("knn", "mixture"):
        gamma = sum(OnlineMixtureWeights((0.0,) * 3).value[:-1])  # nothing was scored before
        mixture_weights = log_probs.exp()[0] - (1 - gamma) * batch.log_probs.exp()[0]
        counts = torch.bincount(
            context.memory.search(batch.hidden[:1], K).values[0], minlength=CLASSES
        )
        torch.testing.assert_close(
            mixture_weights, gamma * counts.double() / K, rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize(("source", "target"), [("ptb", "ptb"), ("wt2", "wt2"), ("wt2", "ptb")])
def test_the_papers_values_are_in_the_papers_units(source: str, target: str) -> None:
    values = paper_values(source, target)
    methods = toy.exact(Hyperparameters().changed(values).methods)
    context, hidden = context_of(1.0, 15), queries(1.0)
    near = context.memory.search(hidden, K)
    theta, gamma = values["mixture.theta"], values["mixture.gamma"]
    states, labels = context.recent.latest(methods[CacheConfig].window)
    expected = {
        "mixture": F.mixture_log_probs(hidden, near, context.head, theta=theta, gamma=gamma),
        "cache": equations.cache_log_probs(
            hidden, states, labels, context.head, theta=values["cache.theta"],
            weight=values["cache.gamma"]
        ),
        "hebb": F.hebb_logits(
            hidden, near, context.head, lr=values["mbpa.lr"], steps=values["mbpa.steps"],
            eta=values["hebb.eta"],
            beta=values["hebb.beta"], counts=context.train_counts + context.observed, eps=1e-3,
        ).log_softmax(1),
    }  # fmt: skip
    for name, log_probs in expected.items():
        found = METHODS[name].predictor(methods).log_probs(EvalBatch(hidden, context))
        torch.testing.assert_close(found, log_probs, rtol=1e-10, atol=1e-10, msg=name)
    other = methods.replaced(replace(methods[MixtureConfig], scale="relative"))
    apart = (
        METHODS["mixture"].predictor(other).log_probs(EvalBatch(hidden, context))
        - expected["mixture"]
    )
    assert apart.abs().max() > 1e-3
