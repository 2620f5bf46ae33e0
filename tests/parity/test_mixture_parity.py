from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional

from ..support import equations
from . import reference
from .problems import make_problem

SCALES = ["relative", "absolute"]


@pytest.mark.parametrize(("form", "scale"), [("linear", "relative"), ("linear", "absolute"), ("logit-sum", "absolute")])
@pytest.mark.parametrize(("theta", "gamma"), [(0.0, 0.3), (0.4, 0.01), (1.0, 0.9)])
def test_mixture(form: str, scale: str, theta: float, gamma: float) -> None:
    hidden, neighbors, head = make_problem(21, labels=5)
    options = {"theta": theta, "gamma": gamma, "form": form, "scale": scale}
    actual = functional.mixture_log_probs(hidden, neighbors, head, **options)
    expected = reference.mixture_probs(hidden, neighbors, head, **options)
    torch.testing.assert_close(actual.exp(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("temperature", "weight"), [(0.5, 0.25), (10.0, 0.8)])
def test_knn(scale: str, temperature: float, weight: float) -> None:
    hidden, neighbors, head = make_problem(22, labels=5)
    options = {"temperature": temperature, "weight": weight, "scale": scale}
    actual = equations.knn_log_probs(hidden, neighbors, head, **options)
    expected = reference.knn_probs(hidden, neighbors, head, **options)
    torch.testing.assert_close(actual.exp(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("scale", SCALES)
def test_cache_is_mixture_over_a_shared_window(scale: str) -> None:
    _, neighbors, head = make_problem(23, n=1, k=9)
    keys, values = neighbors.keys[0], neighbors.values[0]
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    visible = torch.arange(9) < torch.tensor([0, 1, 5, 9])[:, None]
    actual = equations.cache_log_probs(queries, keys, values, head, theta=0.6, weight=0.2, visible=visible, scale=scale)
    for query, seen, row in zip(queries, visible, actual, strict=True):
        expected = base = head.logits(query).softmax(0)
        if seen.any():
            products = keys[seen] @ query
            scores = (0.6 * (reference.relative(products) if scale == "relative" else products)).exp()
            expected = 0.8 * base + 0.2 * reference.label_distribution(scores, values[seen], 13)
        torch.testing.assert_close(row.exp(), expected, rtol=1e-10, atol=0)
