"""What every memory promises, checked against a plain float64 comparison with every entry."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hebblm
from hebblm.memory import (
    AnyMemory,
    DiskMemory,
    FaissMemory,
    FlatMemory,
    HybridMemory,
    RingMemory,
    load_memory,
    save_memory,
)
from hebblm.types import Neighbors

DIM = 8
Make = Callable[[], AnyMemory]

EXACT: dict[str, Make] = {
    "flat": lambda: FlatMemory(DIM),
    "flat-small-chunks": lambda: FlatMemory(DIM, chunk_bytes=512),
    "flat-spilled": lambda: FlatMemory(DIM, spill_bytes=256),
    "flat-float64": lambda: FlatMemory(DIM, dtype=torch.float64),
    "ring-large": lambda: RingMemory(DIM, 10_000),
    "faiss-untrained": lambda: FaissMemory(DIM),
    # Candidates are all entries, so that the index is exercised but can lose nothing.
    "faiss-all-candidates": lambda: FaissMemory(DIM, "PQ4x4fs", rescore=10_000),
    "disk-untrained": lambda: DiskMemory(DIM),
    "disk-all-candidates": lambda: DiskMemory(DIM, "IVF2,PQ4x4", rescore=10_000),
    "hybrid-disk": lambda: HybridMemory(
        DiskMemory(DIM, "IVF2,PQ4x4", rescore=10_000),
        HybridMemory(FaissMemory(DIM, "PQ4x4fs", rescore=10_000), FlatMemory(DIM), flush_at=7),
        flush_at=31,
    ),
    "hybrid-flat": lambda: HybridMemory(FlatMemory(DIM), FlatMemory(DIM), flush_at=7),
    "hybrid-untrained": lambda: HybridMemory(None, FlatMemory(DIM), flush_at=7),
    "hybrid-faiss": lambda: HybridMemory(
        FaissMemory(DIM, "PQ4x4fs", rescore=10_000), FlatMemory(DIM), flush_at=7
    ),
}
exact_memories = pytest.mark.parametrize("make", EXACT.values(), ids=EXACT.keys())


def reference(keys: Tensor, values: Tensor, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return distances and labels of the nearest entries, one query at a time, oldest first on
    ties.
    """
    all_distances, all_values = [], []
    for query in queries.double():
        distances = [float(((key - query) ** 2).sum()) for key in keys.double()]
        order = sorted(range(len(distances)), key=lambda i: (distances[i], i))[:k]
        all_distances.append([distances[i] for i in order])
        all_values.append([int(values[i]) for i in order])
    return torch.tensor(all_distances, dtype=torch.float64), torch.tensor(
        all_values, dtype=torch.int64
    )


def integers(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Return keys with small integer coordinates (exact in every dtype, rich in ties) and distinct
    labels.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-2, 3, (count, DIM), generator=generator).float()
    return keys, torch.arange(count) * 3 + 1


def reals(seed: int, count: int, dim: int = DIM) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def assert_same(first: Neighbors, second: Neighbors) -> None:
    for name in ("keys", "values", "distances", "mask"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


@exact_memories
def test_every_memory_is_one_of_the_contract(make: Make) -> None:
    memory: hebblm.Memory = make()
    assert isinstance(memory, hebblm.Memory)
    keys, values = integers(3, 20)
    memory.add(keys, values)
    found = memory.search(keys[:2], 4)
    assert isinstance(found, hebblm.Neighbors)
    assert len(memory) == 20
    assert found.keys.shape == (2, 4, DIM)
    memory.reset()
    assert len(memory) == 0
    assert not memory.search(keys[:2], 4).mask.any()


@exact_memories
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 90), k=st.integers(1, 40))
def test_search_equals_comparing_everything(make: Make, seed: int, count: int, k: int) -> None:
    keys, values = integers(seed, count)
    queries = integers(seed + 1, 5)[0] + 0.5
    memory = make()
    memory.add(keys, values)
    found = memory.search(queries, k)
    distances, labels = reference(keys, values, queries, k)
    real = min(k, count)
    assert torch.equal(found.distances[:, :real].double(), distances)
    assert torch.equal(found.values[:, :real], labels)
    assert torch.equal(found.keys[:, :real], keys[(labels - 1) // 3])
    assert found.mask[:, :real].all()
    assert not found.mask[:, real:].any()


@exact_memories
def test_fewer_entries_than_neighbours_are_masked(make: Make) -> None:
    memory = make()
    queries = reals(0, 4)
    empty = memory.search(queries, 3)
    assert empty.keys.shape == (4, 3, DIM)
    assert not empty.mask.any()
    assert torch.isinf(empty.distances).all()
    memory.add(reals(1, 2), torch.tensor([5, 6]))
    found = memory.search(queries, 3)
    assert found.mask.tolist() == [[True, True, False]] * 4
    assert found.values.dtype == torch.int64
    assert (found.values[:, 2] == 0).all()
    assert (found.keys[:, 2] == 0).all()
    assert torch.isinf(found.distances[:, 2]).all()
    nobody = memory.search(torch.empty(0, DIM), 3)
    assert (nobody.keys.shape, nobody.mask.shape) == ((0, 3, DIM), (0, 3))


@exact_memories
def test_duplicates_lie_at_distance_zero_oldest_first(make: Make) -> None:
    memory = make()
    key = reals(2, 1) * 100
    memory.add(torch.cat([reals(3, 30), key.expand(40, DIM), reals(4, 30)]), torch.arange(100))
    found = memory.search(key, 12)
    assert torch.equal(found.distances, torch.zeros(1, 12))
    assert found.values[0].tolist() == list(range(30, 42))


@exact_memories
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_adding_online_equals_adding_at_once(make: Make, seed: int, cuts: list[int]) -> None:
    keys, queries = reals(seed, 120), reals(seed + 1, 6)
    whole, parts = make(), make()
    whole.add(keys, torch.arange(120))
    edges = [0, *sorted(cuts), 120]
    for begin, end in itertools.pairwise(edges):
        parts.add(keys[begin:end], torch.arange(begin, end))
        parts.search(queries, 3)
    assert len(whole) == len(parts) == 120
    assert_same(whole.search(queries, 9), parts.search(queries, 9))


@exact_memories
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), begin=st.integers(0, 20), size=st.integers(1, 10))
def test_neighbours_do_not_depend_on_the_batch(
    make: Make, seed: int, begin: int, size: int
) -> None:
    memory = make()
    memory.add(reals(seed, 150), torch.arange(150))
    queries = reals(seed + 1, 30)
    together = memory.search(queries, 10)
    assert_same(memory.search(queries, 10), together)  # searching changes nothing
    alone = memory.search(queries[begin : begin + size], 10)
    for name in ("keys", "values", "distances", "mask"):
        assert torch.equal(getattr(together, name)[begin : begin + size], getattr(alone, name)), (
            name
        )


@exact_memories
def test_reset_returns_to_the_base(make: Make) -> None:
    keys, queries = reals(1, 100), reals(2, 5)
    memory = make()
    memory.add(keys[:40], torch.arange(40))
    memory.mark_base()
    before = memory.search(queries, 6)
    for _ in range(2):
        memory.add(keys[40:], torch.arange(40, 100))
        assert len(memory) == 100
        assert not torch.equal(memory.search(queries, 6).values, before.values)
        memory.reset()
        assert len(memory) == 40
        assert_same(memory.search(queries, 6), before)


@exact_memories
def test_reset_without_a_base_empties(make: Make) -> None:
    memory = make()
    memory.add(reals(1, 60), torch.arange(60))
    memory.search(reals(2, 2), 5)
    memory.reset()
    assert len(memory) == 0
    assert not memory.search(reals(2, 2), 5).mask.any()


@exact_memories
def test_log_normalizers_come_back_only_if_every_entry_has_one(make: Make) -> None:
    memory = make()
    keys, logs = reals(1, 60), torch.linspace(-3, 3, 60)
    for begin in range(0, 60, 10):
        memory.add(
            keys[begin : begin + 10], torch.arange(begin, begin + 10), logs[begin : begin + 10]
        )
    memory.mark_base()
    found = memory.search(reals(2, 4), 70)
    assert found.log_normalizers is not None
    assert torch.equal(found.log_normalizers[:, :60], logs[found.values[:, :60]])
    assert (found.log_normalizers[:, 60:] == 0).all()
    memory.add(reals(3, 1), torch.tensor([60]))
    assert memory.search(reals(2, 4), 5).log_normalizers is None
    memory.reset()
    assert memory.search(reals(2, 4), 5).log_normalizers is not None


@exact_memories
def test_save_and_load(make: Make, tmp_path: Path) -> None:
    memory = make()
    logs = torch.linspace(-3, 3, 100)
    memory.add(reals(1, 100), torch.arange(100) * 7, logs)
    queries = reals(2, 5)
    before = memory.search(queries, 9)
    save_memory(memory, tmp_path / "memory", model_hash="m", dictionary_hash="d")
    assert_same(memory.search(queries, 9), before)
    for mmap in (True, False):
        loaded = load_memory(tmp_path / "memory", model_hash="m", dictionary_hash="d", mmap=mmap)
        assert type(loaded) is type(memory)
        assert loaded.describe() == memory.describe()
        after = loaded.search(queries, 9)
        assert_same(after, before)
        assert before.log_normalizers is not None
        assert after.log_normalizers is not None
        assert torch.equal(after.log_normalizers, before.log_normalizers)
        loaded.add(reals(3, 30), torch.arange(30))
        assert len(loaded) == 130
        loaded.reset()
        assert_same(loaded.search(queries, 9), before)


@pytest.mark.parametrize("spill_bytes", [64, 1 << 30])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_the_rounded_keys(spill_bytes: int, dtype: torch.dtype) -> None:
    keys, queries = reals(1, 200), reals(2, 5)
    half, full = FlatMemory(DIM, dtype=dtype, spill_bytes=spill_bytes), FlatMemory(DIM)
    half.add(keys, torch.arange(200))
    full.add(keys.to(dtype), torch.arange(200))
    found, wanted = half.search(queries, 9), full.search(queries, 9)
    assert found.keys.dtype == torch.float32
    # Sums over other types go in another order.
    torch.testing.assert_close(found.distances, wanted.distances, rtol=1e-5, atol=0)
    assert_same(replace(found, distances=wanted.distances), wanted)


@pytest.mark.parametrize(
    "factory", ["PQ8x4fs", "IVF16,PQ8x4fs", "PCAR32,IVF16,PQ8x4fs", "HNSW16", "Flat", "SQ8"]
)
def test_approximate_memories_find_nearly_all_with_exact_distances(factory: str) -> None:
    dim, count = 32, 4000
    centres = reals(1, 100, dim)
    keys = centres[torch.arange(count) % 100] + 0.3 * reals(2, count, dim)
    queries = centres[:50] + 0.3 * reals(3, 50, dim)
    memory, exact = (
        FaissMemory(dim, factory, nprobe=8 if "IVF" in factory else None),
        FlatMemory(dim),
    )
    for some in (memory, exact):
        some.add(keys, torch.arange(count))
    found, wanted = memory.search(queries, 20), exact.search(queries, 20)
    hits = (found.values[:, :, None] == wanted.values[:, None, :]).any(dim=2)
    assert hits.float().mean() >= 0.97
    assert (found.distances.diff(dim=1) >= 0).all()
    direct = (keys[found.values] - queries[:, None]).square().sum(dim=2)
    torch.testing.assert_close(found.distances, direct, rtol=1e-5, atol=0)
