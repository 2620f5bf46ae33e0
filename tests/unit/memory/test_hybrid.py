from __future__ import annotations

import pytest
import torch

from hebblm.errors import UserError
from hebblm.memory import FaissMemory, FlatMemory, HybridMemory


def rows(seed: int, count: int, dim: int = 8) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_recent_entries_move_to_the_bulk_when_there_are_too_many() -> None:
    memory = HybridMemory(FlatMemory(8), FlatMemory(8), flush_at=10)
    sizes = []
    for step in range(5):
        memory.add(rows(step, 4), torch.arange(4))
        sizes.append((len(memory.bulk), len(memory.recent)))
    assert sizes == [(0, 4), (0, 8), (12, 0), (12, 4), (12, 8)]
    assert len(memory) == 20


def test_recent_entries_are_found_exactly_beside_an_approximate_bulk() -> None:
    bulk = FaissMemory(8, "IVF16,PQ2x4fs", nprobe=1, rescore=1)
    bulk.add(rows(0, 1000), torch.arange(1000))
    bulk.mark_base()
    memory = HybridMemory(bulk, FlatMemory(8), flush_at=500)
    queries = rows(1, 20)
    memory.add(queries, torch.arange(1000, 1020))
    found = memory.search(queries, 5)
    assert found.values[:, 0].tolist() == list(range(1000, 1020))
    assert (found.distances[:, 0] == 0).all()
    assert (found.values[:, 1:] < 1000).any()


def test_reset_keeps_the_trained_bulk_and_drops_what_was_observed() -> None:
    bulk = FaissMemory(8, "PQ4x4fs")
    bulk.add(rows(0, 500), torch.arange(500))
    bulk.mark_base()
    memory = HybridMemory(bulk, FlatMemory(8), flush_at=50)
    queries = rows(1, 10)
    before = memory.search(queries, 5)
    for begin in range(500, 700, 20):
        memory.add(rows(begin, 20), torch.arange(begin, begin + 20))
        memory.search(queries, 5)
    memory.reset()
    assert len(memory) == 500
    assert torch.equal(memory.search(queries, 5).values, before.values)


def test_filling_goes_straight_to_the_bulk_in_the_same_order() -> None:
    memory = HybridMemory(FlatMemory(8), FlatMemory(8), flush_at=10)
    memory.add(rows(0, 4), torch.arange(4))
    memory.fill(rows(1, 3), torch.arange(4, 7), torch.zeros(3))
    memory.fill(rows(2, 2), torch.arange(7, 9))
    assert (len(memory.bulk), len(memory.recent)) == (9, 0)
    [part] = memory.segments()
    assert part.values.tolist() == list(range(9))
    assert torch.equal(part.keys, torch.cat([rows(0, 4), rows(1, 3), rows(2, 2)]))


def test_bad_arguments() -> None:
    with pytest.raises(UserError, match=r"memory\.flush_at=0"):
        HybridMemory(None, FlatMemory(2), flush_at=0)
    with pytest.raises(ValueError, match="width of bulk"):
        HybridMemory(FlatMemory(3), FlatMemory(2))
