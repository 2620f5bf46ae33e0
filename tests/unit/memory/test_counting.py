"""Label counts are those of the entries that are there."""

from __future__ import annotations

import pytest
import torch

from hebblm.errors import UserError
from hebblm.memory import FlatMemory, HybridMemory, RingMemory, label_counts
from hebblm.types import Memory, Neighbors


def test_counts_follow_additions_in_every_part() -> None:
    labels = torch.randint(7, (50,), generator=torch.Generator().manual_seed(0))
    for memory in (FlatMemory(3), HybridMemory(None, FlatMemory(3), flush_at=16)):
        for block in labels.split(10):
            memory.add(torch.randn(len(block), 3), block)
        assert torch.equal(label_counts(memory, 9), torch.bincount(labels, minlength=9))


def test_what_a_ring_dropped_no_longer_counts() -> None:
    memory = RingMemory(2, 4)
    memory.add(torch.randn(6, 2), torch.tensor([0, 0, 1, 2, 2, 2]))
    assert label_counts(memory, 3).tolist() == [0, 1, 3]


class _Foreign:
    def add(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        raise AssertionError

    def search(self, queries: torch.Tensor, k: int) -> Neighbors:
        raise AssertionError

    def reset(self) -> None:
        raise AssertionError

    def __len__(self) -> int:
        return 0


def test_a_foreign_memory_is_refused_by_name() -> None:
    memory: Memory = _Foreign()
    with pytest.raises(UserError, match="_Foreign"):
        label_counts(memory, 2)
