"""A block of the stream that is predicted at once, each token from what was observed before it alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive tokens whose states are known before their labels are scored.

    Args:
        labels: (N,) int64, what followed each state. Row i's own label and later ones are never looked at for row i.
        visible: (N,) int64, row i is predicted when the first ``visible[i]`` rows were observed: at most i, ascending.
        used: rows that the last row sees, and with it any.
        written: whether observed rows are in the memory.
    """

    labels: Tensor
    visible: Tensor
    used: int
    written: bool

    @classmethod
    def of(cls, labels: Tensor, every: int, written: bool) -> Block:
        """Return a block of ``labels`` (N,) that starts with an update and has one each ``every`` tokens."""
        rows = torch.arange(len(labels), device=labels.device)
        return cls(labels, rows // every * every, (len(labels) - 1) // every * every, written)

    @property
    def causal(self) -> bool:
        """Say whether any row was observed before another one is predicted."""
        return self.used > 0

    @property
    def in_memory(self) -> Tensor:
        """(N,) how many of the block's rows the memory holds when each row is predicted."""
        return self.visible if self.written else torch.zeros_like(self.visible)
