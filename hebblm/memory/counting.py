"""How often each label stands in a memory."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.flat import FlatMemory
from hebblm.memory.hybrid import HybridMemory
from hebblm.memory.pq import FaissMemory
from hebblm.memory.ring import RingMemory
from hebblm.types import Memory


def label_counts(memory: Memory, classes: int) -> Tensor:
    """Return the number of present entries of each label, (V,) int64; what a ring dropped no longer counts.

    Args:
        memory: one of this package's memories.
        classes: V.

    Raises:
        UserError: a memory of another kind, whose entries cannot be listed.
    """
    if isinstance(memory, HybridMemory):
        parts = memory.parts()
    elif isinstance(memory, (FlatMemory, RingMemory, FaissMemory)):
        parts = [memory.entries()]
    else:
        raise UserError(
            f"hebb.counts=memory cannot list the entries of a {type(memory).__name__}; use hebb.counts=observed"
        )
    counts = torch.zeros(classes, dtype=torch.int64, device=parts[0].values.device)
    for part in parts:
        counts += torch.bincount(part.values, minlength=classes)
    return counts
