"""Parallel streams and segments cut from one long token stream, and the processes that divide
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

# It would be loaded with the first parallel model, and would keep the process group that it then
# finds as a default argument to the end, past its being destroyed: a thread of that group may abort
# the process as it ends.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Ids = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Share:
    """The rows ``begin`` to ``end`` of a batch of ``total`` streams, which one process reads."""

    begin: int
    end: int
    total: int

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def rows(self) -> slice:
        """Index of these rows."""
        return slice(self.begin, self.end)

    @property
    def weight(self) -> float:
        """Share of the batch, in [0, 1]."""
        return len(self) / self.total


class ParallelStreams:
    """``batch_size`` contiguous parts of a token stream (T,), read side by side; this process reads
    the rows ``share``.

    The tail that does not fill a row is left out, as usual in training; evaluation that scores
    every token reads one stream. Only the segment asked for is copied, so the ids may be a memory
    map of any size.
    """

    def __init__(self, ids: Ids, batch_size: int, share: Share | None = None) -> None:
        self.ids = ids
        self.batch_size = batch_size
        self.share = share or Share(0, batch_size, batch_size)
        self.stride = len(ids) // batch_size
        if self.stride < 2:
            raise ValueError(
                f"{len(ids)} tokens are too few for {batch_size} parallel streams; use a smaller "
                "batch"
            )

    def __len__(self) -> int:
        """Number of predicted tokens a part."""
        return self.stride - 1

    def segment(self, start: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs and targets (b, L) from position ``start``; L is ``length`` or what is left."""
        length = min(length, len(self) - start)
        rows = [
            self.ids[b * self.stride + start : b * self.stride + start + length + 1]
            for b in range(self.share.begin, self.share.end)
        ]
        block = torch.from_numpy(np.stack(rows).astype(np.int64)).to(device)  # (b, L + 1)
        return block[:, :-1], block[:, 1:]


@dataclass(frozen=True, slots=True)
class TrainingRanks:
    """The place of a process among those that train together.

    Args:
        rank: counted from 0.
        count: P; 1 for a process by itself, whose methods exchange nothing.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> TrainingRanks:
        """Return the place in the default process group, or a process by itself."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def partition(self, total: int) -> Share:
        """Rows of a batch of ``total`` that are this process's; they differ by at most one a
        process.
        """
        return Share(total * self.rank // self.count, total * (self.rank + 1) // self.count, total)

    def parallel(self, model: nn.Module) -> nn.Module:
        """Wrap a module for training passes: gradients are averaged over the processes as they are
        formed.
        """
        if self.count == 1:
            return model
        return DistributedDataParallel(model, gradient_as_bucket_view=True)

    def sum(self, value: float, device: torch.device) -> float:
        """Sum of every process's value, the same in all of them."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return float(total.item())

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any process says so."""
        return self.sum(float(flag), device) > 0

    def whole(self, rows: Tensor, share: Share) -> Tensor:
        """Rows (B, ...) of all processes from this one's (b, ...)."""
        if self.count == 1:
            return rows
        together = rows.new_zeros(share.total, *rows.shape[1:])
        together[share.rows] = rows
        dist.all_reduce(together)
        return together
