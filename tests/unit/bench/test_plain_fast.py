from __future__ import annotations

import pytest
import torch

from hebblm.adapt import functional as F
from hebblm.bench.plain_fast import plain_fast
from hebblm.bench.problem import make_batch
from hebblm.bench.source import SyntheticSource


@pytest.mark.parametrize(("classes", "k"), [(80, 7), (1000, 40)])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_thirty_lines_follow_the_exact_form(classes: int, k: int, steps: int) -> None:
    source = SyntheticSource(12, classes, seed=5, device=torch.device("cpu"))
    batch = make_batch(source, entries=300, queries=9, k=k)
    options = {"lr": 3.0, "steps": steps, "eps": 1e-3}
    given = (batch.hidden, batch.neighbors, batch.head)
    plain = plain_fast(*given, **options).log_softmax(1)
    exact = F.mbpa_logits(*given, rate="relative", **options).log_softmax(1)
    base = batch.head.logits(batch.hidden).log_softmax(1)
    off = (exact.exp() * (plain - exact).abs()).sum(1)
    moved = (exact.exp() * (base - exact).abs()).sum(1)
    assert off.mean() < (0.01 if steps == 1 else 0.1) * moved.mean()
