"""The processes that train one model together, on ``torch.distributed``; one by itself needs nothing of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

# It would be loaded with the first parallel model, and would keep the process group that it then finds as a default
# argument to the end, past its being destroyed: a thread of that group may abort the process as it ends.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from awd_lstm.streams import Share


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
    def here(cls) -> TrainingRanks:
        """Place in the default process group; by itself where there is none."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def partition(self, total: int) -> Share:
        """Rows of a batch of ``total`` that are this process's; they differ by at most one a process."""
        return Share(total * self.rank // self.count, total * (self.rank + 1) // self.count, total)

    def parallel(self, model: nn.Module) -> nn.Module:
        """What a training pass calls: gradients are averaged over the processes as they are formed."""
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
