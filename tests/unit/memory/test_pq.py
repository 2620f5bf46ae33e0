from __future__ import annotations

import builtins
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory import (
    FaissMemory,
    FlatMemory,
    MemoryConfig,
    build_memory,
    faiss_index,
    load_memory,
    save_memory,
)
from hebblm.types import Neighbors


def clusters(seed: int, count: int, dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(50, dim, generator=torch.Generator().manual_seed(99))
    chosen = torch.randint(0, 50, (count,), generator=generator)
    return centres[chosen] + 0.3 * torch.randn(count, dim, generator=generator)


def filled(factory: str, count: int = 2000, dim: int = 16, **options: Any) -> FaissMemory:
    memory = FaissMemory(dim, factory, **options)
    memory.add(clusters(0, count, dim), torch.arange(count))
    return memory


def recall(found: Neighbors, wanted: Neighbors) -> float:
    return float((found.values[:, :, None] == wanted.values[:, None, :]).any(dim=2).float().mean())


@pytest.mark.parametrize(
    ("dim", "count", "spec"),
    [
        (400, 19_999, None),
        (200, 149_999, "PQ100x4fs"),
        (199, 50_000, "PQ199x4fs"),
        (60, 50_000, "PQ60x4fs"),
        (200, 1_000_000, "IVF1024,PQ100x4fs"),
    ],
)
def test_auto_chooses_by_size_and_width(dim: int, count: int, spec: str | None) -> None:
    assert faiss_index.auto_spec(dim, count) == spec


@pytest.mark.parametrize("dim", [1, 7, 60, 199, 402])
@pytest.mark.parametrize("count", [20_000, 150_000])
def test_automatic_specs_are_understood(dim: int, count: int) -> None:
    spec = faiss_index.auto_spec(dim, count)
    assert spec is not None
    assert faiss_index.make_index(dim, spec).d == dim


def test_auto_trains_once_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "EXACT_BELOW", 500)
    monkeypatch.setattr(faiss_index, "LISTS_FROM", 1500)
    memory, exact = FaissMemory(16), FlatMemory(16)
    keys, queries = clusters(0, 2400, 16), clusters(1, 30, 16)
    specs = []
    for begin in range(0, 2400, 400):
        for some in (memory, exact):
            some.add(keys[begin : begin + 400], torch.arange(begin, begin + 400))
        assert recall(memory.search(queries, 10), exact.search(queries, 10)) > 0.9
        specs.append(memory.describe()["index"])
    # Trained at 800, and again only when that has doubled, at 1600.
    assert specs == [
        None,
        "PQ16x4fs",
        "PQ16x4fs",
        "IVF32,PQ16x4fs",
        "IVF32,PQ16x4fs",
        "IVF32,PQ16x4fs",
    ]


def test_too_few_entries_to_train_on_are_searched_exactly() -> None:
    memory = filled("IVF64,PQ8x4fs", count=63)
    assert memory.refresh() is None
    memory.add(clusters(2, 1, 16), torch.tensor([63]))
    assert memory.refresh() is not None
    assert faiss_index.training_minimum(faiss_index.make_index(16, "PCAR16,IVF8,PQ8")) == 256


def test_two_builds_agree_bit_for_bit() -> None:
    queries = clusters(1, 20, 16)
    first, second = (filled("IVF16,PQ8x4fs").search(queries, 10) for _ in range(2))
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.distances, second.distances)


def test_more_candidates_and_lists_find_more() -> None:
    exact = FlatMemory(16)
    exact.add(clusters(0, 2000, 16), torch.arange(2000))
    queries = clusters(1, 50, 16)
    wanted = exact.search(queries, 10)
    lists = [recall(filled("IVF64,PQ8x4fs", nprobe=n).search(queries, 10), wanted) for n in (1, 64)]
    candidates = [recall(filled("PQ2x4fs", rescore=n).search(queries, 10), wanted) for n in (1, 20)]
    assert lists[0] < lists[1]
    assert candidates[0] < candidates[1]


def test_a_query_whose_lists_hold_too_little_is_searched_exactly() -> None:
    memory = filled("IVF64,Flat", count=300, nprobe=1)
    exact = FlatMemory(16)
    exact.add(clusters(0, 300, 16), torch.arange(300))
    queries = clusters(1, 10, 16)
    found, wanted = memory.search(queries, 200), exact.search(queries, 200)
    assert found.mask.all()
    assert torch.equal(found.values, wanted.values)


def test_reset_restores_the_index_of_the_base() -> None:
    memory = filled("IVF16,PQ8x4fs")
    memory.mark_base()
    queries = clusters(1, 20, 16)
    before = memory.search(queries, 10)
    for count in (50, 3000):  # appended to the index; trained anew
        memory.add(queries.repeat(count, 1)[:count], torch.arange(count))
        assert not torch.equal(memory.search(queries, 10).values, before.values)
        memory.reset()
        trained = memory.refresh()
        assert trained is not None
        assert len(trained) == 2000
        assert torch.equal(memory.search(queries, 10).values, before.values)


def test_rounding_of_products_never_decides_between_candidates() -> None:
    """Duplicates overflow the short list; among candidates the oldest come first all the same."""
    memory = FaissMemory(16, "PQ4x4fs", rescore=1000)
    memory.add(torch.cat([torch.ones(300, 16), clusters(0, 300, 16)]), torch.arange(600))
    found = memory.search(torch.ones(1, 16), 10)
    assert found.values[0].tolist() == list(range(10))


@pytest.mark.parametrize("factory", ["nonsense", "PQ5x4fs", "IVF,PQ", "exact", ""])
def test_bad_factory_strings_are_named(factory: str) -> None:
    with pytest.raises(UserError, match="memory.index='" + factory):
        FaissMemory(16, factory)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rescore": 0}, "memory.rescore=0"),
        ({"nprobe": 0}, "memory.nprobe=0"),
        ({"factory": "PQ4x4fs", "nprobe": 4}, "memory.nprobe=4 has no effect"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        FaissMemory(16, **options)


def test_searches_without_an_answer_are_refused() -> None:
    with pytest.raises(UserError, match="K = 0"):
        filled("auto").search(torch.zeros(1, 16), 0)
    with pytest.raises(UserError, match="hidden state is not finite"):
        filled("auto").search(torch.full((1, 16), float("nan")), 3)


def test_missing_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "faiss":
            raise builtins.ModuleNotFoundError(name)
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    install = r" needs FAISS, which is not installed: .*pip install -e '\.\[cpu\]'"
    with pytest.raises(UserError, match=f"^memory.index=auto{install}"):
        FaissMemory(16)
    with pytest.raises(UserError, match=f"^memory.store=disk{install}"):
        build_memory(16, MemoryConfig(store="disk"))


def test_an_index_of_a_faiss_without_gpus_is_not_placed_on_one() -> None:
    index = faiss_index.make_index(8, "Flat")
    assert faiss_index.placed(index, torch.device("cpu")) is index
    with pytest.raises(UserError, match=r"this FAISS knows no GPU: .*pip install"):
        faiss_index.placed(index, torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("factory", "nprobe", "least"),
    [("Flat", None, 1.0), ("IVF64,Flat", 32, 0.95), ("IVF64,PQ16", 64, 0.9)],
)
def test_on_a_gpu_it_finds_what_comparing_all_finds(
    factory: str, nprobe: int | None, least: float, tmp_path: Path
) -> None:
    keys, queries, values = clusters(0, 20_000, 64), clusters(1, 50, 64), torch.arange(20_000)
    exact = FlatMemory(64)
    exact.add(keys, values)
    expected = exact.search(queries, 100)
    memory = build_memory(64, MemoryConfig(index=factory, nprobe=nprobe, rescore=10), "cuda")
    memory.add(keys[:15_000].cuda(), values[:15_000].cuda())
    memory.mark_base()
    memory.add(keys[15_000:].cuda(), values[15_000:].cuda())
    found = memory.search(queries.cuda(), 100)
    assert found.distances.is_cuda
    assert bool((found.distances.diff(dim=1) >= 0).all())
    assert recall(replace(found, values=found.values.cpu()), expected) >= least
    save_memory(memory, tmp_path / "saved", model_hash="m", dictionary_hash="d")
    for device in ("cuda", "cpu"):
        again = load_memory(tmp_path / "saved", model_hash="m", dictionary_hash="d", device=device)
        there = again.search(queries.to(device), 100)
        torch.testing.assert_close(
            there.distances.cpu(), found.distances.cpu(), rtol=1e-4, atol=1e-4
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_index_that_no_gpu_has_is_refused() -> None:
    with pytest.raises(UserError, match="no index of the kind"):
        faiss_index.placed(faiss_index.make_index(8, "PQ4x4fs"), torch.device("cuda"))
