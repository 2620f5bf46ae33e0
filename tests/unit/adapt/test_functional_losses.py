from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.functional.grouping import group_ids
from hebblm.adapt.functional.losses import changed_losses, growth, memory_losses, mixture_losses
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.errors import UserError
from hebblm.memory import AnyMemory, FlatMemory, RingMemory

from ...support import toy

CLASSES = 9


def reals(seed: int, *shape: int) -> Tensor:
    return toy.randn(seed, *shape, dtype=torch.float64)


def entries(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scores (5, 7), labels, a mask that hides all or some of a row's entries, and targets
    (5,).
    """
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(5, 7, generator=generator) < torch.tensor([1.0, 0.6, 0.3, 0.0, 0.9])[:, None]
    labels = torch.randint(0, CLASSES, (5, 7), generator=generator)
    return 3 * reals(seed, 5, 7), labels, mask, torch.randint(0, CLASSES, (5,), generator=generator)


@given(seed=st.integers(0, 999), weight=st.sampled_from([0.0, 0.2, 1.0]), shared=st.booleans())
@settings(max_examples=60, deadline=None)
def test_mixture_losses_are_gathered_from_the_mixture(
    seed: int, weight: float, shared: bool
) -> None:
    scores, labels, mask, targets = entries(seed)
    labels = labels[:1] if shared else labels
    base = reals(seed + 1, 5, CLASSES).log_softmax(1)
    expected = (
        -F.memory_mixture(base, scores, labels, mask, weight).gather(1, targets[:, None]).squeeze(1)
    )
    plain = -base.gather(1, targets[:, None]).squeeze(1)
    found = mixture_losses(plain, scores, labels, mask, weight, targets)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_target_that_no_entry_carries_has_no_probability() -> None:
    scores, labels = torch.tensor([[1.0, 2.0]]), torch.tensor([[3, 4]])
    seen = torch.tensor([[True, False]])
    assert memory_losses(scores, labels, seen, torch.tensor([4])).tolist() == [torch.inf]
    assert memory_losses(scores, labels, seen, torch.tensor([3])).tolist() == [0.0]
    assert memory_losses(scores, labels, ~seen & seen, torch.tensor([3])).tolist() == [torch.inf]
    far = torch.tensor([[0.0, -500.0]])
    assert memory_losses(far, labels, ~seen | seen, torch.tensor([4])).tolist() == [500.0], (
        "no underflow"
    )


@given(
    seed=st.integers(0, 999), scale=st.sampled_from([0.0, 1.0, 30.0, 3000.0]), single=st.booleans()
)
@settings(max_examples=80, deadline=None)
def test_changed_losses_are_those_of_the_changed_logits(
    seed: int, scale: float, single: bool
) -> None:
    """Also where the labels held nearly all the mass and lose it, or take all of it."""
    _, labels, mask, targets = entries(seed)
    dense = 2 * reals(seed, 5, CLASSES)
    dense[0] = dense[0].scatter(0, labels[0], 60.0)
    dense[1] *= 50  # some classes have a probability that single precision does not hold
    chosen = (group_ids(labels) == torch.arange(labels.shape[1])) & mask
    changes = scale * reals(seed + 2, 5, CLASSES).gather(1, labels)
    changes[1] = dense[1].max() - dense[1, labels[1]]  # as probable as the most probable one
    changes[0] = -63.0
    expected = dense.clone()
    for row in range(5):
        expected[row, labels[row, chosen[row]]] += changes[row, chosen[row]]
    losses = -expected.log_softmax(1).gather(1, targets[:, None]).squeeze(1)
    dtype = torch.float32 if single else torch.float64
    dense, changes = dense.to(dtype), changes.to(dtype)
    found = changed_losses(dense, dense.logsumexp(1), labels, chosen, changes, targets)
    tolerance = 2e-5 if single else 1e-11
    torch.testing.assert_close(found.double(), losses, rtol=tolerance, atol=tolerance)


@given(seed=st.integers(0, 999), scale=st.sampled_from([0.0, 1.0, 300.0]), single=st.booleans())
@settings(max_examples=60, deadline=None)
def test_growth_is_the_difference_of_two_normalizers(seed: int, scale: float, single: bool) -> None:
    """Also where it leaves the range of single precision's exponential."""
    logits, change, weights = (
        5 * reals(seed, 5, CLASSES),
        scale * reals(seed + 1, 5, CLASSES),
        reals(seed + 2, 5, 3),
    )
    dtype = torch.float32 if single else torch.float64
    logits, change, weights = logits.to(dtype), change.to(dtype), weights.to(dtype)
    sums = logits[:, None].double() + weights[:, :, None].double() * change[:, None].double()
    expected = sums.logsumexp(2) - logits.double().logsumexp(1, keepdim=True)
    tolerance = 2e-5 if single else 1e-11
    found = growth(logits, logits.logsumexp(1), change, weights)
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_shares_out_of_range_are_named() -> None:
    scores, labels, mask, targets = entries(0)
    with pytest.raises(UserError, match=r"weight = 1.5"):
        mixture_losses(scores[:, 0], scores, labels, mask, 1.5, targets)
    with pytest.raises(UserError, match=r"weight = -1"):
        mixture_losses(scores[:, 0], scores, labels, mask, -1, targets)


@pytest.mark.parametrize(
    "make", [lambda: FlatMemory(toy.DIM), lambda: RingMemory(toy.DIM, 9)], ids=["flat", "ring"]
)
@pytest.mark.parametrize("every", [1, 4, 100])
def test_every_rule_scores_what_its_distribution_says(make, every: int) -> None:  # type: ignore[no-untyped-def]
    memory: AnyMemory = make()
    stream = toy.stream_of(toy.tokens(0, 30))
    context = toy.context_of(toy.base_of(toy.tiny_model()), memory, stream)
    toy.observe(context, toy.randn(1, 20, toy.DIM), torch.arange(20) % 5 + 22)
    hidden, labels = toy.randn(2, 16, toy.DIM), torch.from_numpy(toy.tokens(3, 16))
    hidden[5:9] = hidden[2]
    predictors = {name: METHODS[name].predictor(toy.SETTINGS) for name in STATIC_METHODS}
    predictors["logit-sum"] = Mixture(MixtureConfig(0.8, 0.25, "logit-sum", "absolute"))
    predictors["memory alone"] = Mixture(MixtureConfig(0.8, 1.0))
    batch = EvalBatch(hidden, context, Block.of(labels, every, written=True))
    for name, predictor in predictors.items():
        log_probs = predictor.log_probs(batch)
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(16), rtol=0, atol=1e-5)
        for targets in (labels, labels.flip(0)):
            expected = -log_probs.gather(1, targets[:, None]).squeeze(1)
            torch.testing.assert_close(
                predictor.score(batch, targets), expected, rtol=1e-5, atol=2e-5, msg=name
            )
