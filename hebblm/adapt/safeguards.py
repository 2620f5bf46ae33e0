"""Counts of the queries whose adaptation rose or was stabilised, noted mini-batch by mini-batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.mbpa import fast_errors, mbpa_result
from hebblm.adapt.methods.rule import Rule


@dataclass(frozen=True, slots=True)
class Safeguards:
    """Outcome of an adaptation, query by query.

    Args:
        rose: (N,) bool, the neighbours' loss rose.
        stabilized: (N,) bool, it was run again at a stable rate.
        errors: (M,) what the fast form cost, nats a token, for the queries where it was measured.
    """

    rose: Tensor
    stabilized: Tensor
    errors: Tensor

    @classmethod
    def of(cls, rule: Rule, batch: EvalBatch) -> Safeguards:
        """Return what happened in the gradient steps that a rule rests on, or that nothing did."""
        nothing = torch.zeros(len(batch.hidden), dtype=torch.bool, device=batch.hidden.device)
        rose, stabilized, errors = nothing, nothing, [batch.hidden.new_zeros(0)]
        for config in rule.needs.descents:
            result = mbpa_result(batch, config)
            rose, stabilized = rose | result.rose, stabilized | result.stabilized
            errors.append(fast_errors(batch, config))
        return cls(rose, stabilized, torch.cat(errors))
