from __future__ import annotations

import pytest
import torch

from hebblm.bench.problem import Batch, make_batch
from hebblm.bench.source import SyntheticSource


@pytest.fixture(scope="module")
def batch() -> Batch:
    source = SyntheticSource(12, 80, seed=5, device=torch.device("cpu"))
    return make_batch(source, entries=120, queries=9, k=7)


def test_a_batch_is_what_a_memory_gives(batch: Batch) -> None:
    near = batch.neighbors
    assert near.keys.shape == (9, 7, 12)
    expected = (near.keys - batch.hidden[:, None]).square().sum(2)
    torch.testing.assert_close(near.distances, expected, rtol=1e-4, atol=1e-4)
    assert near.log_normalizers is not None
    torch.testing.assert_close(near.log_normalizers, batch.head.logits(near.keys).logsumexp(2))
    assert int(batch.counts.sum()) == 120


def test_part_of_a_batch(batch: Batch) -> None:
    part = batch.first(4, 3)
    assert part.hidden.shape == (4, 12)
    assert part.targets.shape == (4,)
    assert torch.equal(part.neighbors.keys, batch.neighbors.keys[:4, :3])
    assert part.neighbors.log_normalizers is not None
    assert part.neighbors.log_normalizers.shape == (4, 3)
    assert part.double().neighbors.distances.dtype == torch.float64
