"""Least work of a search of a memory, and the time that takes."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.memory import AnyMemory, faiss_index
from recipes.bench.retrieve import trained_index
from recipes.study.cost.floor import Phase
from recipes.study.cost.rates import measure_rates
from recipes.study.cost.work import IndexShape, exact_work, index_work

MANY = 4096  # entries compared at a time


def search_phase(memory: AnyMemory, queries: Tensor, k: int) -> Phase | None:
    """Return the work of a search beside the machine's rates, None for an index whose work is not known.

    Args:
        memory: not empty; its recent entries, which are few, count for nothing.
        queries: (N, D) a mini-batch.
        k: neighbours wanted, K.
    """
    keys, (batch, dim) = memory.segments()[0].keys, queries.shape
    k = min(k, len(keys))
    trained, candidates = trained_index(memory, k)
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
