"""Which queries of a mini-batch were run in another form than the one asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional import MbpaResult


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What an adaptation needed beyond its plain form, query by query.

    Args:
        stabilized: (N,) bool, it diverged and was run at a stable rate.
        widened: (N,) bool, its fast form followed more classes, to keep to the tolerance.
        exact_fallbacks: (N,) bool, its fast form gave way to the exact one.
    """

    stabilized: Tensor
    widened: Tensor
    exact_fallbacks: Tensor

    @classmethod
    def none(cls, hidden: Tensor) -> Safeguards:
        """Return that no query (N, D) needed any."""
        nothing = torch.zeros(hidden.shape[0], dtype=torch.bool, device=hidden.device)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of(cls, result: MbpaResult) -> Safeguards:
        """Return those of MbPA."""
        return cls(result.stabilized, result.widened, result.exact_fallbacks)

    def __or__(self, other: Safeguards) -> Safeguards:
        """Return the queries that needed them in either of two parts."""
        return Safeguards(
            self.stabilized | other.stabilized,
            self.widened | other.widened,
            self.exact_fallbacks | other.exact_fallbacks,
        )
