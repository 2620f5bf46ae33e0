"""From a configuration to a memory."""

from __future__ import annotations

import torch

from hebblm.errors import UserError
from hebblm.memory import faiss_index
from hebblm.memory.config import MemoryConfig
from hebblm.memory.flat import FlatMemory
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.persistence import AnyMemory
from hebblm.memory.pq import FaissMemory
from hebblm.memory.ring import RingMemory

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
