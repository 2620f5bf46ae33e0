"""Memories of (hidden state, label) pairs, searched by squared L2 distance.

Every class satisfies :class:`hebblm.types.Memory`; ``add`` takes log-normalisers as well, ``mark_base`` makes
the present entries the state that ``reset`` returns to, and equal distances are ordered oldest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily

if TYPE_CHECKING:
    from hebblm.memory.config import MemoryConfig
    from hebblm.memory.counting import label_counts
    from hebblm.memory.factory import build_memory
    from hebblm.memory.flat import FlatMemory
    from hebblm.memory.hybrid import HybridMemory
    from hebblm.memory.persistence import AnyMemory, load_memory, save_memory
    from hebblm.memory.pq import FaissMemory
    from hebblm.memory.ring import RingMemory

__all__ = [
    "AnyMemory",
    "FaissMemory",
    "FlatMemory",
    "HybridMemory",
    "MemoryConfig",
    "RingMemory",
    "build_memory",
    "label_counts",
    "load_memory",
    "save_memory",
]

if not TYPE_CHECKING:  # a name that is none stays an error for the type checker
    __getattr__ = lazily(
        __name__, "config", "counting", "factory", "flat", "hybrid", "persistence", "pq", "ring"
    )
