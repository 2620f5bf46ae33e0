from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional
from hebblm.types import Neighbors, OutputHead

from ..support import equations
from .problems import make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_cuda(neighbors: Neighbors, head: OutputHead) -> tuple[Neighbors, OutputHead]:
    assert neighbors.log_normalizers is not None
    moved = Neighbors(
        neighbors.keys.cuda(),
        neighbors.values.cuda(),
        neighbors.distances.cuda(),
        neighbors.mask.cuda(),
        neighbors.log_normalizers.cuda(),
    )
    return moved, OutputHead(head.weight.cuda(), None if head.bias is None else head.bias.cuda())


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "fast"}, {"solver": "fast", "lr_units": "relative"}, {"optimizer": "rmsprop"}],
)
@pytest.mark.parametrize("lr", [0.01, 50.0])
def test_adaptation_on_cuda(options: dict[str, object], lr: float) -> None:
    hidden, neighbors, head = make_problem(41, k=20, v=600)
    there, head_there = on_cuda(neighbors, head)
    counts = torch.arange(600)
    shared = {"lr": lr, "steps": 3, "eps": 1e-3, "eta": 0.5, "beta": 0.5, **options}
    expected = functional.hebb_logits(hidden, neighbors, head, counts=counts, **shared)
    actual = functional.hebb_logits(
        hidden.cuda(), there, head_there, counts=counts.cuda(), **shared
    )
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-8, atol=1e-8)


def test_mixtures_on_cuda() -> None:
    hidden, neighbors, head = make_problem(42)
    there, head_there = on_cuda(neighbors, head)
    for form in ("linear", "logit-sum"):
        options = {"theta": 0.4, "gamma": 0.3, "form": form}
        expected = functional.mixture_log_probs(hidden, neighbors, head, **options)
        actual = functional.mixture_log_probs(hidden.cuda(), there, head_there, **options)
        torch.testing.assert_close(actual.cpu(), expected)
    expected = equations.knn_log_probs(hidden, neighbors, head, temperature=2.0, weight=0.3)
    actual = equations.knn_log_probs(hidden.cuda(), there, head_there, temperature=2.0, weight=0.3)
    torch.testing.assert_close(actual.cpu(), expected)
    window = (neighbors.keys[0], neighbors.values[0])
    expected = equations.cache_log_probs(hidden, *window, head, theta=0.4, weight=0.3)
    actual = equations.cache_log_probs(
        hidden.cuda(), *(part.cuda() for part in window), head_there, theta=0.4, weight=0.3
    )
    torch.testing.assert_close(actual.cpu(), expected)
