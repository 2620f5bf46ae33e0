"""A mini-batch and its neighbours, as the adapters get them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.bench.source import Source
from hebblm.memory import MemoryConfig, build_memory
from hebblm.types import Neighbors, OutputHead


@dataclass(frozen=True, slots=True)
class Batch:
    """Queries with everything that adaptation needs.

    Args:
        head: weight (V, D), bias (V,).
        hidden: (N, D).
        targets: (N,) int64.
        neighbors: K for each.
        counts: (V,) int64, how often each class is among the entries.
    """

    head: OutputHead
    hidden: Tensor
    targets: Tensor
    neighbors: Neighbors
    counts: Tensor

    def first(self, rows: int, k: int | None = None) -> Batch:
        """Return the same for the first queries only, and only the ``k`` nearest neighbours of each."""
        near = self.neighbors
        parts = (near.keys, near.values, near.distances, near.mask, near.log_normalizers)
        part = Neighbors(*(each[:rows, :k].contiguous() for each in parts if each is not None))
        return Batch(self.head, self.hidden[:rows], self.targets[:rows], part, self.counts)

    def double(self) -> Batch:
        """Return the same in double precision."""
        near, bias = self.neighbors, self.head.bias
        logs = None if near.log_normalizers is None else near.log_normalizers.double()
        wide = Neighbors(near.keys.double(), near.values, near.distances.double(), near.mask, logs)
        head = OutputHead(self.head.weight.double(), None if bias is None else bias.double())
        return Batch(head, self.hidden.double(), self.targets, wide, self.counts)


@torch.no_grad()
def make_batch(source: Source, *, entries: int, queries: int, k: int) -> Batch:
    """Search ``entries`` entries of a source exactly for the neighbours of its first queries.

    The entries carry the normalisers of their base logits, as they do behind a fixed base.
    """
    head = source.head
    memory = build_memory(head.weight.shape[1], MemoryConfig(index="exact"), head.weight.device)
    counts = torch.zeros(head.weight.shape[0], dtype=torch.int64, device=head.weight.device)
    for keys, labels in source.entries(entries):
        memory.add(keys, labels, log_normalizers(keys, head))
        counts += torch.bincount(labels, minlength=len(counts))
    hidden, targets = source.queries(queries)
    return Batch(head, hidden, targets, memory.search(hidden, k), counts)
