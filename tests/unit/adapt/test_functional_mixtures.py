from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.adapt import functional
from hebblm.adapt.functional.mixture_weights import mixed
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

from ...support import equations


def problem(seed: int = 0, scale: float = 1.0) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    generator = torch.Generator().manual_seed(seed)
    hidden = scale * torch.randn(4, 5, generator=generator)
    keys = scale * torch.randn(4, 6, 5, generator=generator)
    values = torch.randint(0, 9, (4, 6), generator=generator)
    head = OutputHead(torch.randn(9, 5, generator=generator), torch.randn(9, generator=generator))
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1, 2:] = False
    mask[2] = False
    distances = (keys - hidden[:, None]).square().sum(2).masked_fill(~mask, torch.inf)
    return hidden, Neighbors(keys * mask[:, :, None], values * mask, distances, mask), head


SHARES = st.floats(0, 1)


@given(st.integers(0, 999), SHARES, st.floats(0, 1e4), st.sampled_from(["linear", "logit-sum"]))
@settings(max_examples=60, deadline=None)
def test_mixture_sums_to_one_whatever_theta(
    seed: int, gamma: float, theta: float, form: str
) -> None:
    hidden, neighbors, head = problem(seed, scale=20.0)
    result = functional.mixture_log_probs(
        hidden, neighbors, head, theta=theta, gamma=gamma, form=form
    )
    torch.testing.assert_close(result.exp().sum(1), torch.ones(4), rtol=0, atol=1e-5)


def test_cache_equals_mixture_where_windows_are_neighbors() -> None:
    hidden, neighbors, head = problem()
    window = Neighbors(
        neighbors.keys[:1].expand(4, 6, 5),
        neighbors.values[:1].expand(4, 6),
        neighbors.distances[:1].expand(4, 6),
        neighbors.mask[:1].expand(4, 6),
    )
    torch.testing.assert_close(
        equations.cache_log_probs(
            hidden, neighbors.keys[0], neighbors.values[0], head, theta=0.3, weight=0.2
        ),
        functional.mixture_log_probs(hidden, window, head, theta=0.3, gamma=0.2),
    )


def test_order_of_entries_does_not_matter() -> None:
    hidden, neighbors, head = problem(5)
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    shuffled = Neighbors(
        neighbors.keys[:, order],
        neighbors.values[:, order],
        neighbors.distances[:, order],
        neighbors.mask[:, order],
    )
    torch.testing.assert_close(
        functional.mixture_log_probs(hidden, shuffled, head, theta=0.5, gamma=0.5),
        functional.mixture_log_probs(hidden, neighbors, head, theta=0.5, gamma=0.5),
    )


def test_half_precision_keys_are_taken() -> None:
    hidden, neighbors, head = problem()
    half = replace(neighbors, keys=neighbors.keys.half())
    rounded = replace(neighbors, keys=neighbors.keys.half().float())
    assert torch.equal(
        functional.mixture_log_probs(hidden, half, head, theta=0.5, gamma=0.5),
        functional.mixture_log_probs(hidden, rounded, head, theta=0.5, gamma=0.5),
    )


@given(st.integers(0, 999), SHARES)
@settings(max_examples=40, deadline=None)
def test_interpolation(seed: int, weight: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.randn(2, 3, 7, generator=generator, dtype=torch.float64).log_softmax(2)
    expected = (weight * p.exp() + (1 - weight) * q.exp()).log()
    torch.testing.assert_close(mixed(p, q, weight), expected)


def test_interpolation_is_exact_at_the_ends() -> None:
    p, q = torch.tensor([[-torch.inf, 0.0]]), torch.tensor([[0.0, -torch.inf]])
    assert torch.equal(mixed(p, q, 0.0), q)
    assert torch.equal(mixed(p, q, 1.0), p)
    torch.testing.assert_close(mixed(p, p, 0.5), torch.tensor([[-torch.inf, 0.0]]))


def test_bad_values_are_named() -> None:
    hidden, neighbors, head = problem()
    for gamma in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match=f"gamma = {gamma}"):
            functional.mixture_log_probs(hidden, neighbors, head, theta=0.4, gamma=gamma)
        with pytest.raises(UserError, match=f"weight = {gamma}"):
            equations.knn_log_probs(hidden, neighbors, head, temperature=1.0, weight=gamma)
        with pytest.raises(UserError, match=f"weight = {gamma}"):
            mixed(hidden, hidden, gamma)
    with pytest.raises(UserError, match=r"theta = -1.0"):
        functional.mixture_log_probs(hidden, neighbors, head, theta=-1.0, gamma=0.1)
    with pytest.raises(UserError, match=r"theta = -1.0"):
        equations.cache_log_probs(
            hidden, neighbors.keys[0], neighbors.values[0], head, theta=-1.0, weight=0.1
        )
    with pytest.raises(UserError, match=r"temperature = 0.0"):
        equations.knn_log_probs(hidden, neighbors, head, temperature=0.0, weight=0.1)
    with pytest.raises(UserError, match="form = 'cubic'"):
        functional.mixture_log_probs(hidden, neighbors, head, theta=0.4, gamma=0.1, form="cubic")
