"""What a search of a memory has to go through, and the least time that takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hebblm.bench.floor import Phase
from hebblm.bench.rates import measure_rates
from hebblm.bench.work import IndexShape, exact_work, index_work
from hebblm.memory import AnyMemory, FaissMemory, FlatMemory, HybridMemory, RingMemory, faiss_index
from hebblm.memory.faiss_index import TrainedIndex

MANY = 4096  # entries compared at a time


def index_call(memory: AnyMemory, k: int) -> Callable[[Tensor], object] | None:
    """Return the part of a search that a trained index does, None where there is none.

    Args:
        memory: what is searched.
        k: neighbours wanted, K.
    """
    trained, candidates = _trained(memory, k)
    if trained is None:
        return None
    index = trained.index
    return lambda queries: index.search(faiss_index.as_float32(queries), candidates)


def search_phase(memory: AnyMemory, queries: Tensor, k: int) -> Phase | None:
    """Return the work of a search beside the machine's rates, None for an index whose work is not known.

    Args:
        memory: not empty; its recent entries, which are few, count for nothing.
        queries: (N, D) a mini-batch.
        k: neighbours wanted, K.
    """
    keys, (batch, dim) = _bulk(memory).entries().keys, queries.shape
    k = min(k, len(keys))
    trained, candidates = _trained(memory, k)
    if trained is not None:
        shape = index_shape(trained.index, queries, candidates)
        if shape is None:
            return None
        work = index_work(shape, dim=dim, k=k, batch=batch, stored=keys.element_size())
    else:
        work = exact_work(entries=len(keys), dim=dim, k=k, batch=batch, stored=keys.element_size())
    return Phase(work, measure_rates(keys, [(batch, dim, MANY)], streamed=batch * work.streamed))


def index_shape(index: object, queries: Tensor, candidates: int) -> IndexShape | None:
    """Return what a search of a FAISS index goes through; None where it does not compare product-quantised codes.

    Args:
        index: trained, with or without inverted lists.
        queries: (N, D) a mini-batch.
        candidates: that a query is to be given.
    """
    faiss = faiss_index.load_faiss()
    inverted = faiss.try_extract_index_ivf(index)
    coded = faiss.downcast_index(index if inverted is None else inverted)
    if not hasattr(coded, "pq"):
        return None
    codes, code_bytes = int(coded.pq.M), float(coded.pq.code_size)
    if inverted is None:
        count = float(coded.ntotal)
        return IndexShape(0, codes, code_bytes, count, count, candidates)
    _, found = inverted.quantizer.search(faiss_index.as_float32(queries), inverted.nprobe)
    visited = torch.from_numpy(found)  # (N, nprobe), -1 for none
    lists = inverted.invlists
    sizes = torch.tensor([lists.list_size(number) for number in range(inverted.nlist)])
    compared = sizes[visited.clamp_min(0)].masked_fill(visited < 0, 0).sum(1).double().mean()
    read = sizes[torch.bincount(visited[visited >= 0], minlength=inverted.nlist) > 0].sum()
    return IndexShape(inverted.nlist, codes, code_bytes, float(compared), float(read), candidates)


def _bulk(memory: AnyMemory) -> FlatMemory | RingMemory | FaissMemory:
    """Return the part of a memory that holds what was there before the stream."""
    return memory.bulk if isinstance(memory, HybridMemory) else memory


def _trained(memory: AnyMemory, k: int) -> tuple[TrainedIndex | None, int]:
    """Return the trained index of a memory, None where it compares everything, and the candidates it is asked for."""
    bulk = _bulk(memory)
    if not isinstance(bulk, FaissMemory):
        return None, 0
    return bulk.refresh(), min(bulk.rescore * k, len(bulk))
