"""Bulk memory: a trained FAISS index proposes candidates, the stored keys decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory import faiss_index
from hebblm.memory.exact import StoredMemory
from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.nearest import (
    Ranked,
    checked,
    compute_dtype,
    error_bound,
    listed_distances,
    nearest,
    pad,
    rank,
    row_slices,
)
from hebblm.memory.store import SPILL_BYTES, Entries, EntryStore


class FaissMemory(StoredMemory):
    """Entries with an approximate index and exact distances.

    The index proposes ``rescore * K`` candidates. Their distances are computed from the stored
    keys, and the nearest K are returned in the order of :class:`~hebblm.memory.exact.FlatMemory`.
    The first search builds the index on a seeded sample. New entries are added to it, and it is
    trained again whenever their number has doubled. With too few entries to train on, search is
    exact.

    Args:
        dim: D, the width of a key.
        factory: "auto" (exact below 20,000 entries, ``PQ{m}x4fs`` below 150,000,
            ``IVF{n},PQ{m}x4fs`` above) or any FAISS factory string.
        dtype: of the stored keys: float32, float16, bfloat16 or float64.
        rescore: candidates for each neighbour wanted, at least 1.
        nprobe: inverted lists visited by a search; None for one in 32, at least 32.
        spill_bytes: keys that outgrow this many bytes are memory-mapped from a temporary file.
        device: device of keys, index and searches.

    Raises:
        UserError: FAISS is missing, an argument is out of range or not understood, or FAISS has no
            such index for GPUs.
    """

    kind = "faiss"

    def __init__(
        self,
        dim: int,
        factory: str = "auto",
        *,
        dtype: torch.dtype = torch.float32,
        rescore: int = 5,
        nprobe: int | None = None,
        spill_bytes: int = SPILL_BYTES,
        device: torch.device | str = "cpu",
    ) -> None:
        faiss_index.load_faiss(f"memory.index={factory}")
        super().__init__(EntryStore(dim, dtype=dtype, device=device, spill_bytes=spill_bytes))
        check_search(rescore, nprobe)
        self._minimum = 1
        if factory != "auto":
            index = faiss_index.make_index(dim, factory)
            self._minimum = faiss_index.training_minimum(index)
            if not faiss_index.set_nprobe(index, nprobe) and nprobe is not None:
                raise UserError(
                    f"memory.nprobe={nprobe} has no effect with memory.index={factory}; leave it "
                    "unset"
                )
        self.factory = factory
        self.rescore = rescore
        self.nprobe = nprobe
        self._trained: TrainedIndex | None = None
        self._base_trained: TrainedIndex | None = None

    def over(self, store: EntryStore, trained: TrainedIndex | None = None) -> Self:
        """Return this memory with other entries, which become its base, and an index over a prefix
        of them.
        """
        if trained is not None:
            faiss_index.set_nprobe(trained.index, self.nprobe)
            trained = replace(trained, index=faiss_index.placed(trained.index, store.device))
        self._trained = trained
        return super().over(store)

    def nearest(self, queries: Tensor, k: int) -> Ranked:
        entries = self.entries()
        queries = checked(queries, entries, k)
        trained = self.refresh()
        if trained is None or not len(queries):
            return nearest(queries, entries, k)
        wanted = min(k, len(self))
        # (N, C)
        ids = faiss_index.propose(trained.index, queries, min(self.rescore * wanted, len(self)))
        if bool((ids >= len(self)).any()):
            raise UserError(
                "the inverted lists of a memory on disk were changed; build the memory again"
            )
        ranked = _rescore(queries, entries, ids, wanted)
        # The lists visited may hold fewer than K entries altogether.
        short = (ranked.ids < 0).any(dim=1)
        if bool(short.any()):
            again = nearest(queries[short], entries, wanted)
            ranked.distances[short] = again.distances
            ranked.ids[short] = again.ids
        return pad(ranked, k)

    def refresh(self) -> TrainedIndex | None:
        count = len(self)
        trained = self._trained
        if trained is not None and count < 2 * trained.trained:
            if count > len(trained):
                if trained is self._base_trained:
                    trained = TrainedIndex(
                        faiss_index.clone(trained.index), trained.spec, trained.trained
                    )
                faiss_index.extend(trained.index, self.entries().keys[len(trained) :])
                self._trained = trained
            return trained
        spec = faiss_index.auto_spec(self.dim, count) if self.factory == "auto" else self.factory
        if spec is None or count < self._minimum:
            return None
        index = faiss_index.make_index(self.dim, spec)
        keys = self.entries().keys
        faiss_index.train(index, keys)
        faiss_index.set_nprobe(index, self.nprobe)
        index = faiss_index.placed(index, keys.device)
        faiss_index.extend(index, keys)
        self._trained = TrainedIndex(index, spec, count)
        return self._trained

    def write_index(self, folder: Path) -> TrainedIndex | None:
        """Write the index next to the arrays; the next search adds entries that it lacks."""
        trained = self.refresh()
        if trained is not None:
            # Through Python's file, so that a full disk is an OSError and not FAISS's own
            # exception.
            (folder / "index.faiss").write_bytes(faiss_index.serialized(trained.index).data)
        return trained

    def mark_base(self) -> None:
        """Build the index, and make the present entries the state that :meth:`reset` returns to."""
        super().mark_base()
        self._base_trained = self.refresh()

    def reset(self) -> None:
        super().reset()
        self._trained = self._base_trained

    def settings(self) -> dict[str, Any]:
        return {
            "factory": self.factory,
            "index": None if self._trained is None else self._trained.spec,
            "rescore": self.rescore,
            "nprobe": self.nprobe,
        }


def check_search(rescore: int, nprobe: int | None) -> None:
    """Refuse values with which no index would find an entry."""
    if rescore < 1:
        raise UserError(f"memory.rescore={rescore} leaves no candidates; use at least 1")
    if nprobe is not None and nprobe < 1:
        raise UserError(f"memory.nprobe={nprobe} visits no list; use at least 1")


def _rescore(queries: Tensor, entries: Entries, ids: Tensor, wanted: int) -> Ranked:
    """Return the exact ``wanted`` nearest (N, K) among candidates ``ids`` (N, C), -1 for missing
    ones.

    Rounded distances first reduce the candidates to little more than K. If their rounding could
    have cost one of the K, all candidates are ranked.
    """
    kept = wanted + max(16, wanted // 8)
    if kept >= ids.shape[1]:
        ranked = rank(queries, entries.keys, ids)
        return Ranked(ranked.distances[:, :wanted], ranked.ids[:, :wanted])
    if queries.dtype == entries.keys.dtype == torch.float32 and ids.device.type == "cpu":
        rough = listed_distances(queries, entries.keys, ids)  # (N, C)
    else:
        rough = _products(queries, entries, ids)
    near = rough.masked_fill_(ids < 0, float("inf")).topk(kept, dim=1, largest=False, sorted=False)
    ranked = rank(queries, entries.keys, ids.gather(1, near.indices))
    floors = near.values.amax(dim=1)  # (N,)
    distances, chosen = ranked.distances[:, :wanted], ranked.ids[:, :wanted]
    # Infinite floors mean that every candidate is on the list.
    # (N,)
    doubtful = ~(distances[:, -1] + 2 * error_bound(queries, entries) < floors) & floors.isfinite()
    if bool(doubtful.any()):
        again = rank(queries[doubtful], entries.keys, ids[doubtful])
        distances, chosen = distances.clone(), chosen.clone()
        distances[doubtful] = again.distances[:, :wanted]
        chosen[doubtful] = again.ids[:, :wanted]
    return Ranked(distances, chosen)


def _products(queries: Tensor, entries: Entries, ids: Tensor) -> Tensor:
    """Return squared distances (N, C) of queries (N, D) to the entries at ``ids`` (N, C), subject
    to rounding.
    """
    dtype = compute_dtype(queries, entries.keys)
    dim = entries.keys.shape[1]
    distances = torch.empty(ids.shape, dtype=dtype, device=ids.device)
    for block in row_slices(len(ids), ids.shape[1] * dim * dtype.itemsize, ids.device):
        listed, centres = ids[block], queries[block].to(dtype)  # (n, C), (n, D)
        flat = listed.clamp_min(0).flatten()
        rows = entries.keys.index_select(0, flat).to(dtype).view(*listed.shape, dim)
        products = torch.bmm(rows, centres[..., None])[..., 0]  # (n, C)
        norms = entries.norms.index_select(0, flat).view_as(listed)
        distances[block] = norms - 2 * products + centres.square().sum(dim=1, keepdim=True)
    return distances
