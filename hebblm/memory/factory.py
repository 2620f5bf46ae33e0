"""From a configuration to a memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hebblm.errors import UserError
from hebblm.memory import faiss_index
from hebblm.memory.flat import FlatMemory
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.persistence import AnyMemory
from hebblm.memory.pq import FaissMemory
from hebblm.memory.ring import RingMemory

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How entries are kept and searched.

    Args:
        index: "exact"; "auto", which is exact on a GPU, without FAISS, or below 20,000 entries, and a trained
            index with exact re-scoring otherwise; or any FAISS factory string.
        capacity: keep the latest so many entries only (Hebb-250, Hebb-500); None keeps all.
        dtype: of the stored keys: "float32", or of half the size "float16" (3 decimal digits up to 65,504) or
            "bfloat16" (2 digits, the range of float32).
        nprobe: inverted lists visited by a search; None for one in 32, at least 32.
        rescore: candidates for each neighbour that a trained index proposes.
    """

    index: str = "auto"
    capacity: int | None = None
    dtype: str = "float32"
    nprobe: int | None = None
    rescore: int = 5


def build_memory(dim: int, config: MemoryConfig, device: torch.device | str = "cpu") -> AnyMemory:
    """Return an empty memory for keys of width ``dim``.

    Args:
        dim: D.
        config: how to keep and search.
        device: where exact memories live; a FAISS index is searched on the CPU.

    Raises:
        UserError: a value out of range, a combination without meaning, or FAISS asked for and missing.
    """
    if config.dtype not in DTYPES:
        raise UserError(f"memory.dtype={config.dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    dtype = DTYPES[config.dtype]
    if config.capacity is not None:
        if config.index not in ("auto", "exact"):
            raise UserError(f"memory.capacity={config.capacity} needs memory.index=exact, not {config.index}")
        return RingMemory(dim, config.capacity, dtype=dtype, device=device)
    automatic = config.index == "auto"
    if config.index == "exact" or (automatic and not _index_pays(device)):
        if config.nprobe is not None and not automatic:
            raise UserError(
                f"memory.nprobe={config.nprobe} has no meaning for memory.index=exact; leave it unset"
            )
        return FlatMemory(dim, dtype=dtype, device=device)
    bulk = FaissMemory(dim, config.index, dtype=dtype, rescore=config.rescore, nprobe=config.nprobe)
    return HybridMemory(bulk, FlatMemory(dim, dtype=dtype, device="cpu"))


def _index_pays(device: torch.device | str) -> bool:
    """Say whether a trained index is to be had and faster: a GPU compares everything in less time."""
    return torch.device(device).type == "cpu" and faiss_index.is_installed()
