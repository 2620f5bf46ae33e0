"""What happened to the queries of a mini-batch while they were adapted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional import MbpaResult


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What is counted of an adaptation.

    Args:
        rose: (N,) bool, the neighbours' loss rose.
        stabilized: (N,) bool, it was run again at a stable rate.
        errors: (M,) what the fast form cost, nats a token, for the queries where it was measured.
    """

    rose: Tensor
    stabilized: Tensor
    errors: Tensor

    @classmethod
    def none(cls, hidden: Tensor) -> Safeguards:
        """Return that nothing happened to any query (N, D)."""
        nothing = torch.zeros(hidden.shape[0], dtype=torch.bool, device=hidden.device)
        return cls(nothing, nothing, hidden.new_zeros(0))

    @classmethod
    def of(cls, result: MbpaResult, errors: Tensor) -> Safeguards:
        """Return what happened in MbPA, and the ``errors`` (M,) measured."""
        return cls(result.rose, result.stabilized, errors)

    def __or__(self, other: Safeguards) -> Safeguards:
        """Return what happened in either of two parts."""
        return Safeguards(
            self.rose | other.rose,
            self.stabilized | other.stabilized,
            torch.cat([self.errors, other.errors]),
        )
