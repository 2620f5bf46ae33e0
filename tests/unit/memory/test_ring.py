from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.memory import FlatMemory, RingMemory


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 20), sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_equals_an_exact_memory_of_the_latest_entries(capacity: int, sizes: list[int]) -> None:
    generator = torch.Generator().manual_seed(capacity)
    ring = RingMemory(3, capacity)
    keys = torch.randint(-2, 3, (sum(sizes), 3), generator=generator).float()
    queries = torch.randn(4, 3, generator=generator)
    seen = 0
    for size in sizes:
        ring.add(keys[seen : seen + size], torch.arange(seen, seen + size))
        seen += size
        plain = FlatMemory(3)
        plain.add(keys[max(0, seen - capacity) : seen], torch.arange(max(0, seen - capacity), seen))
        assert len(ring) == len(plain)
        found, expected = ring.search(queries, 5), plain.search(queries, 5)
        assert torch.equal(found.values, expected.values)
        assert torch.equal(found.distances, expected.distances)
        assert torch.equal(found.mask, expected.mask)


def test_holds_no_more_than_twice_its_capacity() -> None:
    ring = RingMemory(2, 10)
    for step in range(100):
        ring.add(torch.full((3, 2), float(step)), torch.arange(3))
        assert len(ring._store) < 20


def test_reset_brings_forgotten_base_entries_back() -> None:
    ring = RingMemory(1, 3)
    ring.add(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 2, 3]))
    ring.mark_base()
    for _ in range(2):
        ring.add(torch.tensor([[7.0], [8.0], [9.0], [10.0]]), torch.tensor([7, 8, 9, 10]))
        assert ring.search(torch.zeros(1, 1), 3).values.tolist() == [[8, 9, 10]]
        ring.reset()
        assert ring.search(torch.zeros(1, 1), 3).values.tolist() == [[1, 2, 3]]


def test_normalisers_return_once_the_entry_without_one_is_forgotten() -> None:
    ring = RingMemory(1, 2)
    ring.add(torch.zeros(1, 1), torch.tensor([0]))
    ring.add(torch.ones(1, 1), torch.tensor([1]), torch.tensor([0.5]))
    assert ring.search(torch.zeros(1, 1), 2).log_normalizers is None
    ring.add(torch.full((1, 1), 2.0), torch.tensor([2]), torch.tensor([0.25]))
    logs = ring.search(torch.zeros(1, 1), 2).log_normalizers
    assert logs is not None
    assert logs.tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize("capacity", [0, -1])
def test_capacity_must_be_positive(capacity: int) -> None:
    with pytest.raises(UserError, match=f"memory.capacity={capacity}"):
        RingMemory(2, capacity)
