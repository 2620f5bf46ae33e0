from __future__ import annotations

import pytest
import torch

from hebblm.memory import AnyMemory, HybridMemory, MemoryConfig, build_memory, faiss_index
from recipes.bench.retrieve import index_call
from recipes.bench.source import SyntheticSource, filled
from recipes.study.cost.search_floor import index_shape, search_phase
from recipes.study.cost.work import exact_work

faiss = pytest.importorskip("faiss")
DIM = 16


def memory(index: str, count: int = 1500) -> tuple[AnyMemory, torch.Tensor]:
    source = SyntheticSource(DIM, 50, seed=2, device=torch.device("cpu"))
    made = build_memory(DIM, MemoryConfig(index=index, nprobe=None, rescore=3))
    made.add(*filled(source, count))
    made.mark_base()
    return made, source.queries(12)[0]


def trained(made: AnyMemory) -> object:
    assert isinstance(made, HybridMemory)
    found = made.bulk.refresh()  # type: ignore[union-attr]
    assert found is not None
    return found.index


def test_inverted_lists_are_counted_as_they_are_visited() -> None:
    made, queries = memory("IVF64,PQ8x4fs")
    index = trained(made)
    inverted = faiss.try_extract_index_ivf(index)
    inverted.nprobe = 5
    found = index_shape(index, queries, 30)
    assert found is not None
    assert (found.lists, found.codes, found.code_bytes, found.candidates) == (64, 8, 4, 30)
    centres = torch.from_numpy(inverted.quantizer.reconstruct_n(0, 64))
    nearest = torch.cdist(queries, centres).topk(5, largest=False).indices
    sizes = torch.tensor([inverted.invlists.list_size(number) for number in range(64)])
    assert int(sizes.sum()) == 1500
    assert found.compared == pytest.approx(float(sizes[nearest].sum(1).double().mean()))
    assert found.read == float(sizes[sorted(set(nearest.flatten().tolist()))].sum())


def test_without_lists_every_code_is_compared() -> None:
    made, queries = memory("PQ8x4fs")
    found = index_shape(trained(made), queries, 30)
    assert found is not None
    assert (found.lists, found.compared, found.read) == (0, 1500, 1500)


def test_what_is_not_coded_has_no_floor() -> None:
    made, queries = memory("IVF16,Flat")
    assert index_shape(trained(made), queries, 30) is None
    assert search_phase(made, queries, 5) is None


@pytest.mark.parametrize("index", ["auto", "exact"])
def test_a_small_memory_compares_everything(index: str) -> None:
    made, queries = memory(index)
    phase = search_phase(made, queries, 5)
    assert phase is not None
    assert phase.work == exact_work(entries=1500, dim=DIM, k=5, batch=12)
    assert index_call(made, 5) is None


def test_a_search_asks_for_as_many_candidates_as_the_memory_does() -> None:
    made, queries = memory("PQ8x4fs")
    phase = search_phase(made, queries, 5)
    assert phase is not None
    assert phase.work.gathered == 15 * DIM * 4
    call = index_call(made, 5)
    assert call is not None
    found = call(queries)
    assert isinstance(found, tuple)
    assert found[1].shape == (12, 15)
    assert faiss_index.is_installed()
