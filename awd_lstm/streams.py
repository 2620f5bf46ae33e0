"""Parallel streams and segments cut from one long token stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
        """Them as an index."""
        return slice(self.begin, self.end)

    @property
    def weight(self) -> float:
        """What they are of the batch, in [0, 1]."""
        return len(self) / self.total


class ParallelStreams:
    """``batch_size`` contiguous parts of a token stream (T,), read side by side; only the rows of ``share`` are read
    here.

    The tail that does not fill a row is left out, as usual in training; evaluation that scores every token reads one
    stream. Only the segment asked for is copied, so the ids may be a memory map of any size.
    """

    def __init__(self, ids: Ids, batch_size: int, share: Share | None = None) -> None:
        self.ids = ids
        self.batch_size = batch_size
        self.share = share or Share(0, batch_size, batch_size)
        self.stride = len(ids) // batch_size
        if self.stride < 2:
            raise ValueError(f"{len(ids)} tokens are too few for {batch_size} parallel streams; use a smaller batch")

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
