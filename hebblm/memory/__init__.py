"""Memories of (hidden state, label) pairs, searched by squared L2 distance.

Every class is an :class:`AnyMemory`, and so satisfies :class:`hebblm.types.Memory`; equal distances
are ordered oldest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.memory.base import AnyMemory
    from hebblm.memory.config import MemoryConfig
    from hebblm.memory.disk import DiskMemory
    from hebblm.memory.exact import FlatMemory, RingMemory
    from hebblm.memory.factory import build_memory, load_memory
    from hebblm.memory.hybrid import HybridMemory
    from hebblm.memory.persistence import save_memory
    from hebblm.memory.pq import FaissMemory
    from hebblm.memory.sharded import ShardedMemory

__all__ = [
    "AnyMemory",
    "DiskMemory",
    "FaissMemory",
    "FlatMemory",
    "HybridMemory",
    "MemoryConfig",
    "RingMemory",
    "ShardedMemory",
    "build_memory",
    "load_memory",
    "save_memory",
]

if not TYPE_CHECKING:  # the type checker still reports a name that does not exist
    __getattr__ = lazily(
        __name__,
        "config",
        "base",
        "disk",
        "exact",
        "factory",
        "hybrid",
        "persistence",
        "pq",
        "sharded",
    )
