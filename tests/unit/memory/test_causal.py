from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hebblm.memory import AnyMemory, FaissMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.memory.causal import WrittenBlock, dropped_counts, occurrences
from hebblm.types import Neighbors

DIM = 4
MEMORIES: dict[str, Callable[[], AnyMemory]] = {
    "flat": lambda: FlatMemory(DIM),
    "flat-half": lambda: FlatMemory(DIM, dtype=torch.float16),
    "flat-bfloat16": lambda: FlatMemory(DIM, dtype=torch.bfloat16),
    "flat-double": lambda: FlatMemory(DIM, dtype=torch.float64),
    "ring-shorter-than-a-block": lambda: RingMemory(DIM, 5),
    "ring": lambda: RingMemory(DIM, 23),
    "ring-never-full": lambda: RingMemory(DIM, 1000),
    "hybrid-flat": lambda: HybridMemory(FlatMemory(DIM), FlatMemory(DIM), flush_at=9),
    "hybrid-faiss": lambda: HybridMemory(
        FaissMemory(DIM, "PQ4x4fs", rescore=10_000), FlatMemory(DIM), flush_at=9
    ),
}
every_memory = pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())


def stream(seed: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys rich in duplicates and ties, labels, and log-normalisers."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-1, 2, (count, DIM), generator=generator) + 0.25
    return (
        keys,
        torch.randint(0, 6, (count,), generator=generator),
        torch.randn(count, generator=generator),
    )


def visible(count: int, every: int) -> Tensor:
    return torch.arange(count) // every * every


def rows_of(found: list[Neighbors]) -> Neighbors:
    logs = [near.log_normalizers for near in found if near.log_normalizers is not None]
    return Neighbors(
        *(
            torch.cat([getattr(near, name) for near in found])
            for name in ("keys", "values", "distances", "mask")
        ),
        torch.cat(logs) if len(logs) == len(found) else None,
    )


def assert_same(first: Neighbors, second: Neighbors) -> None:
    for name in ("keys", "values", "distances", "mask"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    assert first.log_normalizers is not None
    assert second.log_normalizers is not None
    assert torch.equal(first.log_normalizers, second.log_normalizers)


@every_memory
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 999), stored=st.sampled_from([0, 3, 40]), every=st.integers(1, 5),
    k=st.sampled_from([1, 6, 70])
)  # fmt: skip
def test_a_block_finds_what_writing_token_by_token_finds(
    make: Callable[[], AnyMemory], seed: int, stored: int, every: int, k: int
) -> None:
    """Bit for bit, ties included, and again in the block after it."""
    slow, fast = make(), make()
    for memory in (slow, fast):
        memory.add(*stream(seed + 1, stored))
        memory.mark_base()
    keys, labels, logs = stream(seed, 37)
    expected = []
    for begin in range(0, 37, every):
        some = slice(begin, begin + every)
        expected.append(slow.search(keys[some], k))
        slow.add(keys[some], labels[some], logs[some])
    found, begin = [], 0
    while begin < 37:
        limit = fast.span(every)
        size = 4 * every if limit is None else min(4 * every, limit)
        assert size % every == 0
        some = slice(begin, begin + size)
        block = WrittenBlock(
            fast, keys[some], labels[some], visible(len(keys[some]), every), logs[some]
        )
        found.append(block.search(k))
        fast.add(keys[some], labels[some], logs[some])
        begin += size
    assert_same(rows_of(found), rows_of(expected))


@every_memory
def test_later_rows_change_nothing_before_them(make: Callable[[], AnyMemory]) -> None:
    memory = make()
    memory.add(*stream(0, 30))
    keys, labels, _ = stream(1, 8)
    other, names = keys.clone(), labels.clone()
    other[5:], names[5:] = 99.0, 5
    first, second = (
        WrittenBlock(memory, some, marks, visible(8, 1)).search(9)
        for some, marks in ((keys, labels), (other, names))
    )
    for name in ("keys", "values", "distances"):
        assert torch.equal(getattr(first, name)[:5], getattr(second, name)[:5])
    assert not torch.equal(first.values[5:], second.values[5:])


def test_a_block_ends_where_recent_entries_move_to_the_bulk() -> None:
    memory = HybridMemory(FlatMemory(DIM), FlatMemory(DIM), flush_at=10)
    assert [memory.span(every) for every in (1, 3, 10, 50)] == [11, 12, 20, 50]
    memory.add(*stream(0, 9))
    assert [memory.span(every) for every in (1, 3)] == [2, 3]
    memory.add(*stream(0, 2))
    assert (len(memory.recent), memory.span(1)) == (0, 11)


def test_a_memory_that_may_find_others_is_taken_interval_by_interval() -> None:
    memory = FaissMemory(DIM)
    assert memory.span(7) == 7
    with pytest.raises(TypeError, match="interval by interval"):
        WrittenBlock(memory, *stream(0, 4)[:2], visible(4, 1))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), length=st.integers(0, 12))
def test_occurrences_are_counted(seed: int, length: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 5, (length,), generator=generator)
    wanted = torch.randint(0, 8, (6, 7), generator=generator)
    last = torch.randint(0, length + 1, (6,), generator=generator)
    expected = [
        [values[:stop].tolist().count(label) for label in row]
        for row, stop in zip(wanted.tolist(), last, strict=True)
    ]
    assert occurrences(wanted, values, last).tolist() == expected


@pytest.mark.parametrize("capacity", [3, 8, 50])
@pytest.mark.parametrize("stored", [0, 2, 20])
def test_what_a_ring_drops_while_a_block_is_written(capacity: int, stored: int) -> None:
    memory = RingMemory(DIM, capacity)
    memory.add(*stream(0, stored)[:2])
    keys, labels, _ = stream(1, 10)
    wanted = torch.arange(6).expand(10, 6)
    before = memory.counts(6)
    counts = (
        before
        + occurrences(wanted, labels, visible(10, 2))
        - dropped_counts(memory, wanted, labels, visible(10, 2))
    )
    for row in range(10):
        if row % 2 == 0 and row:
            memory.add(keys[row - 2 : row], labels[row - 2 : row])
        assert torch.equal(counts[row], memory.counts(6)), row
    assert torch.equal(
        dropped_counts(FlatMemory(DIM), wanted, labels, visible(10, 2)), torch.zeros_like(wanted)
    )


def test_counts_follow_additions_in_every_part() -> None:
    labels = torch.randint(7, (50,), generator=torch.Generator().manual_seed(0))
    for memory in (FlatMemory(3), HybridMemory(None, FlatMemory(3), flush_at=16)):
        for block in labels.split(10):
            memory.add(torch.randn(len(block), 3), block)
        assert torch.equal(memory.counts(9), torch.bincount(labels, minlength=9))


def test_what_a_ring_dropped_no_longer_counts() -> None:
    memory = RingMemory(2, 4)
    memory.add(torch.randn(6, 2), torch.tensor([0, 0, 1, 2, 2, 2]))
    assert memory.counts(3).tolist() == [0, 1, 3]
