"""Cross-entropy in chunks and by sampling, against the plain formula."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from awd_lstm import loss
from awd_lstm.loss import linear_cross_entropy, sampled_cross_entropy


def problem(count: int, width: int, vocabulary: int, seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Return hidden (N, D), weight (V, D), bias (V,) that want gradients, and targets (N,)."""
    g = torch.Generator().manual_seed(seed)
    shapes = [(count, width), (vocabulary, width), (vocabulary,)]
    leaves = [
        torch.randn(*s, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes
    ]
    return [*leaves, torch.randint(vocabulary, (count,), generator=g)]


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9), width=st.integers(1, 5), vocabulary=st.integers(1, 12),
    chunk=st.integers(1, 120), scale=st.floats(-3, 3), seed=st.integers(0, 999),
)  # fmt: skip
def test_any_chunk_gives_the_plain_loss_and_gradients(
    count: int, width: int, vocabulary: int, chunk: int, scale: float, seed: int
) -> None:
    *leaves, targets = problem(count, width, vocabulary, seed, torch.float64)
    with patch.object(loss, "CHUNK_ELEMENTS", chunk):
        value = linear_cross_entropy(*leaves, targets, dtype=torch.float64)
    expected = plain(*leaves, targets)
    assert_close(value, expected, rtol=1e-12, atol=1e-12)
    got = torch.autograd.grad(scale * value, leaves)
    want = torch.autograd.grad(scale * expected, leaves)
    assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_gradients_are_right_where_only_some_are_wanted(frozen: int) -> None:
    *leaves, targets = problem(5, 3, 7, 0, torch.float64)
    leaves[frozen].requires_grad_(False)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    got = torch.autograd.grad(linear_cross_entropy(*leaves, targets, dtype=torch.float64), wanted)
    assert_close(got, torch.autograd.grad(plain(*leaves, targets), wanted), rtol=1e-12, atol=1e-12)


def test_without_gradients_the_value_is_the_same() -> None:
    *leaves, targets = problem(6, 4, 9, 1, torch.float32)
    with torch.no_grad():
        value = linear_cross_entropy(*leaves, targets)
    assert not value.requires_grad
    assert_close(value, linear_cross_entropy(*leaves, targets).detach())
    assert_close(value, plain(*leaves, targets).detach())


def test_bfloat16_products_stay_close() -> None:
    *leaves, targets = problem(64, 32, 200, 2, torch.float32)
    leaves = [leaf.detach().mul(0.3).requires_grad_() for leaf in leaves]
    value = linear_cross_entropy(*leaves, targets, dtype=torch.bfloat16)
    expected = plain(*leaves, targets)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=5e-3)
    got = torch.autograd.grad(value, leaves)
    for mine, true in zip(got, torch.autograd.grad(expected, leaves), strict=True):
        assert (mine - true).norm() < 0.02 * true.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_target_beyond_the_smallest_float_has_a_finite_loss(dtype: torch.dtype) -> None:
    hidden = torch.tensor([[1.0], [1.0]])
    weight, bias = torch.tensor([[0.0], [300.0], [90.0]]), torch.zeros(3)
    value = linear_cross_entropy(hidden, weight, bias, torch.tensor([0, 2]), dtype=dtype)
    assert value.item() == pytest.approx(
        (300 + 210) / 2, rel=1e-2 if dtype == torch.bfloat16 else 1e-6
    )


def test_sampling_every_word_gives_the_full_loss() -> None:
    *leaves, targets = problem(8, 4, 30, 3, torch.float64)
    uniform = torch.full((30,), 1 / 30)
    torch.manual_seed(0)
    value = sampled_cross_entropy(*leaves, targets, uniform, 20_000, torch.float64)
    expected = plain(*leaves, targets)
    assert_close(value, expected, rtol=1e-9, atol=1e-9)
    got = [grad.to_dense() for grad in torch.autograd.grad(value, leaves)]
    assert_close(got, list(torch.autograd.grad(expected, leaves)), rtol=1e-9, atol=1e-9)


def test_sampling_estimates_the_partition_function_without_bias() -> None:
    *leaves, targets = problem(1, 4, 40, 4, torch.float64)
    leaves = [leaf.detach() * 0.7 for leaf in leaves]
    proposal = torch.arange(1, 41, dtype=torch.float32)
    proposal /= proposal.sum()
    torch.manual_seed(0)
    # exp(loss) is (sum of the scores) / (score of the target), linear in the estimated sum.
    draws = [
        sampled_cross_entropy(*leaves, targets, proposal, 12, torch.float64).exp().item()
        for _ in range(3000)
    ]
    estimates = torch.tensor(draws, dtype=torch.float64)
    error = estimates.std().item() / len(draws) ** 0.5
    true = plain(*leaves, targets).exp().item()
    assert error < 0.03 * true
    assert estimates.mean().item() == pytest.approx(true, abs=4 * error)


def test_many_samples_come_close_to_the_full_loss() -> None:
    *leaves, targets = problem(50, 8, 500, 5, torch.float64)
    leaves = [leaf.detach() * 0.3 for leaf in leaves]
    torch.manual_seed(0)
    uniform = torch.full((500,), 1 / 500)
    draws = [
        sampled_cross_entropy(*leaves, targets, uniform, 400, torch.float64) for _ in range(20)
    ]
    assert torch.stack(draws).mean().item() == pytest.approx(
        plain(*leaves, targets).item(), rel=0.01
    )


def test_drawing_the_target_does_not_count_it_twice() -> None:
    hidden, weight, bias = torch.ones(1, 2), torch.ones(5, 2), torch.zeros(5)
    only_three = torch.zeros(5)
    only_three[3] = 1.0
    value = sampled_cross_entropy(
        hidden, weight, bias, torch.tensor([3]), only_three, 10, torch.float32
    )
    assert value.item() == 0.0
    # Another target is scored against the drawn word, here with an equal score.
    other = sampled_cross_entropy(
        hidden, weight, bias, torch.tensor([1]), only_three, 10, torch.float32
    )
    assert other.item() == pytest.approx(torch.tensor(2.0).log().item())


@pytest.mark.parametrize("chunk", [1, 3 * 512, 1 << 20])
def test_the_fused_sampled_loss_is_the_plain_formula(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "CHUNK_ELEMENTS", chunk)
    *leaves, targets = problem(11, 4, 60, 6, torch.float64)
    hidden, weight, bias = leaves
    proposal = torch.linspace(1, 5, 60)
    proposal /= proposal.sum()
    torch.manual_seed(2)
    value = sampled_cross_entropy(hidden, weight, bias, targets, proposal, 25, torch.float64)
    torch.manual_seed(2)
    drawn = torch.unique(torch.multinomial(proposal, 25, replacement=True))
    chance = -torch.expm1(25 * torch.log1p(-proposal[drawn].double()))
    scores = hidden @ weight[drawn].t() + bias[drawn] - chance.log()
    scores = scores.masked_fill(drawn == targets[:, None], -torch.inf)
    true = (hidden * weight[targets]).sum(1) + bias[targets]
    expected = (torch.cat([true[:, None], scores], 1).logsumexp(1) - true).mean()
    assert (drawn == targets[:, None]).any(), (
        "a target among the drawn words is the case in question"
    )
    assert_close(value, expected, rtol=1e-12, atol=1e-12)
    got = [grad.to_dense() for grad in torch.autograd.grad(value, leaves)]
    assert_close(got, list(torch.autograd.grad(expected, leaves)), rtol=1e-10, atol=1e-12)


class Products(TorchDispatchMode):
    """Notes the shapes of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[torch.Size, torch.Size]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.mm.default:
            self.shapes.add((args[0].shape, args[1].shape))
        return func(*args, **(kwargs or {}))


def test_draws_of_different_sizes_share_the_shapes_of_their_products() -> None:
    # oneDNN compiles a product of a new shape and keeps it: time and memory would grow with every
    # segment.
    *leaves, targets = problem(8, 4, 2000, 7, torch.float32)
    proposal = torch.full((2000,), 1 / 2000)
    sizes = set()
    with Products() as products:
        for samples in range(300, 360, 5):
            sizes.add(len(torch.unique(torch.multinomial(proposal, samples, replacement=True))))
            sampled_cross_entropy(*leaves, targets, proposal, samples, torch.float32)
    assert len(sizes) > 6
    assert len(products.shapes) == 3
