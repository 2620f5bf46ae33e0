"""How often each label stands in a memory, or in a part of the stream."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.causal import parts_of
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
    parts = parts_of(memory)
    if not parts:
        raise UserError(
            f"hebb.counts=memory cannot list the entries of a {type(memory).__name__}; use hebb.counts=observed"
        )
    counts = torch.zeros(classes, dtype=torch.int64, device=parts[0].values.device)
    for part in parts:
        counts += torch.bincount(part.values, minlength=classes)
    return counts


def dropped_counts(memory: Memory, wanted: Tensor, labels: Tensor, visible: Tensor) -> Tensor:
    """Return how many entries of each wanted label a ring drops while a block of the stream is written to it.

    Args:
        memory: as it is before the block.
        wanted: (N, K) int64 labels.
        labels: (N,) int64, the block's own; its first rows may be dropped in turn.
        visible: (N,) int64, how many rows of the block were written when each of its rows comes.

    Returns:
        (N, K) int64; 0 for a memory that drops nothing.
    """
    if not isinstance(memory, RingMemory):
        return torch.zeros_like(wanted)
    dropped = (visible + len(memory) - memory.capacity).clamp_min(0)  # (N,)
    run = torch.cat([memory.entries().values[: int(dropped.max())].to(labels.device), labels])
    return occurrences(wanted, run[: int(dropped.max())], dropped)


def occurrences(wanted: Tensor, values: Tensor, last: Tensor) -> Tensor:
    """Count each wanted label among the first labels of a run.

    Args:
        wanted: (N, K) int64 labels.
        values: (B,) int64, the run.
        last: (N,) int64, how many labels of the run count for each row.

    Returns:
        (N, K) int64.
    """
    if not len(values):
        return torch.zeros_like(wanted)
    distinct, column = torch.unique(values, return_inverse=True)  # (U,), (B,)
    running = torch.zeros(len(values) + 1, len(distinct), dtype=torch.int64, device=values.device)
    running[1:].scatter_(1, column[:, None], 1)
    table = running.cumsum(0)[last]  # (N, U)
    place = torch.searchsorted(distinct, wanted.contiguous()).clamp_max_(len(distinct) - 1)  # (N, K)
    return torch.where(distinct[place] == wanted, table.gather(1, place), 0)
