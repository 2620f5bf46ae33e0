from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hebblm.memory import nearest as module
from hebblm.memory.nearest import (
    Ranked,
    listed_distances,
    merge,
    nearest,
    nearest_within,
    pad,
    shifted,
)
from hebblm.memory.store import Entries, EntryStore


def entries_of(keys: Tensor) -> Entries:
    return EntryStore.from_tensors(keys, torch.arange(len(keys)), None).entries()


def by_direct_difference(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The definition: every entry by direct difference, pair by pair, a stable sort, the first
    k.
    """
    only = torch.zeros(1, 1, dtype=torch.int64)
    rows = []
    for query in queries:
        rows.append(torch.cat([listed_distances(query[None], key[None], only)[0] for key in keys]))
    distances, ids = torch.stack(rows).sort(dim=1, stable=True)
    return distances[:, :k], ids[:, :k]


@pytest.mark.parametrize("faiss", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_listed_distances_are_those_of_the_formula(
    dtype: torch.dtype, faiss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not faiss:
        monkeypatch.setattr(module.faiss_index, "is_installed", lambda: False)
    generator = torch.Generator().manual_seed(0)
    keys, queries = (
        torch.randn(50, 37, generator=generator).to(dtype),
        torch.randn(9, 37, generator=generator),
    )
    ids = torch.randint(0, 50, (9, 20), generator=generator)
    wanted = (queries.double()[:, None] - keys.double()[ids]).square().sum(2)
    torch.testing.assert_close(
        listed_distances(queries, keys, ids).double(), wanted, rtol=1e-6, atol=0
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(30, 150),
    dim=st.integers(1, 40),
    spread=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
    offset=st.sampled_from([0.0, 10.0, 1000.0]),
    chunk_bytes=st.sampled_from([1, 2000, 1 << 20]),
)
def test_products_never_decide(
    seed: int, count: int, dim: int, spread: float, offset: float, chunk_bytes: int
) -> None:
    """Keys so close together, and so far from the origin, that matrix products cannot tell them
    apart.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = offset + spread * torch.randn(count, dim, generator=generator)
    queries = offset + spread * torch.randn(4, dim, generator=generator)
    found = nearest(queries, entries_of(keys), 7, chunk_bytes=chunk_bytes)
    distances, ids = by_direct_difference(queries, keys, 7)
    assert torch.equal(found.ids, ids)
    assert torch.equal(found.distances, distances)


def test_reduced_matmul_precision_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, queries = (
        torch.randn(400, 64, generator=generator),
        torch.randn(20, 64, generator=generator),
    )
    strict = nearest(queries, entries_of(keys), 10)
    torch.set_float32_matmul_precision("medium")
    try:
        loose = nearest(queries, entries_of(keys), 10)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(strict.ids, loose.ids)
    assert torch.equal(strict.distances, loose.distances)


def test_float64_queries_are_compared_in_float64() -> None:
    keys = torch.tensor([[1.0, 0.0], [1.0, 1e-12]], dtype=torch.float64)
    found = nearest(torch.tensor([[1.0, 1e-12]], dtype=torch.float64), entries_of(keys), 2)
    assert found.ids.tolist() == [[1, 0]]
    assert found.distances[0, 1] == pytest.approx(1e-24)


def test_doubtful_queries_are_examined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal keys overflow the candidates; the oldest must win although products return any of
    them.
    """
    calls = []
    original = module._within

    def counted(queries: Tensor, *rest: object) -> Ranked:
        calls.append(len(queries))
        return original(queries, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_within", counted)
    keys = torch.cat([torch.ones(500, 4), torch.full((500, 4), 9.0)])
    keys[250:260] = 5.0
    found = nearest(torch.tensor([[1.0] * 4, [5.0] * 4]), entries_of(keys), 10, chunk_bytes=4000)
    assert found.ids[0].tolist() == list(range(10))
    assert found.ids[1].tolist() == list(range(250, 260))
    assert calls == [1]


def test_merge_prefers_the_first_on_ties_and_drops_empty_columns() -> None:
    first = pad(Ranked(torch.tensor([[1.0, 2.0]]), torch.tensor([[4, 5]])), 3)
    second = pad(Ranked(torch.tensor([[0.5, 2.0]]), torch.tensor([[8, 9]])), 3)
    merged = merge(first, second, 3)
    assert merged.ids.tolist() == [[8, 4, 5]]
    assert merged.distances.tolist() == [[0.5, 1.0, 2.0]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same_neighbours_whatever_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(20_000, 401, generator=generator).cuda()
    queries = torch.randn(64, 401, generator=generator).cuda()
    together = nearest(queries, entries_of(keys), 50)
    alone = nearest(queries[7:8], entries_of(keys), 50, chunk_bytes=1 << 16)
    assert torch.equal(together.ids[7:8], alone.ids)
    assert torch.equal(together.distances[7:8], alone.distances)
    direct = torch.cdist(queries.double(), keys.double()).square().sort(dim=1).values[:, :50]
    torch.testing.assert_close(together.distances.double(), direct, rtol=1e-5, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    older=st.integers(0, 120),
    newer=st.integers(0, 60),
    k=st.integers(1, 25),
    spread=st.sampled_from([0.0, 1e-6, 1.0]),
    offset=st.sampled_from([0.0, 1000.0]),
)
def test_beside_an_older_part_it_completes_the_nearest_of_all(
    seed: int, older: int, newer: int, k: int, spread: float, offset: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = spread * torch.randn(older + newer, 7, generator=generator) + offset
    queries = spread * torch.randn(5, 7, generator=generator) + offset
    first = nearest(queries, entries_of(keys[:older]), k)
    found = nearest_within(queries, entries_of(keys[older:]), k, first.distances[:, -1])
    together, whole = merge(first, shifted(found, older), k), nearest(queries, entries_of(keys), k)
    assert torch.equal(together.ids, whole.ids)
    assert torch.equal(together.distances, whole.distances)


def test_what_lies_beyond_the_limits_is_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[tuple[int, ...]] = []
    generator = torch.Generator().manual_seed(0)
    keys, queries = torch.randn(500, 7, generator=generator), torch.randn(3, 7, generator=generator)
    limits = nearest(queries, entries_of(keys), 4).distances[:, -1]
    rank = module.rank
    monkeypatch.setattr(
        module,
        "rank",
        lambda q, keys, ids: (ranked.append(tuple(ids.shape)), rank(q, keys, ids))[1],
    )
    found = nearest_within(queries, entries_of(keys), 50, limits)
    assert ranked == [(3, 4)]
    assert (found.ids >= 0).sum(1).tolist() == [4, 4, 4]


def test_no_queries_and_no_entries() -> None:
    keys = torch.randn(6, 3)
    assert nearest_within(keys[:0], entries_of(keys), 2, torch.zeros(0)).ids.shape == (0, 2)
    assert (nearest_within(keys, entries_of(keys[:0]), 2, torch.zeros(6)).ids == -1).all()
