"""What a share that depends on the query is made of, and the mixture by it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as nn

from hebblm.adapt.functional.losses import first_and_sum


def gated(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """Return ``log(g exp(first) + (1 - g) exp(second))``, g the sigmoid of a gate that is 0 or 1 without overflow.

    Args:
        first: (N,) or (N, V) log-probabilities in nats.
        second: of the same shape.
        gate: (N,) or (N, 1) logit of g.
    """
    return torch.logaddexp(first + nn.logsigmoid(gate), second + nn.logsigmoid(-gate))


def label_entropy(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return the entropy (N,) in nats of the labels under ``softmax(s)``; 0 for a query that sees no entry.

    Args:
        scores: (N, K) unnormalised log-weights.
        labels: (N, K) int64.
        mask: (N, K) bool, the entries a query sees.
    """
    weights = scores.masked_fill(~mask, -torch.inf).softmax(1).nan_to_num(0.0)  # (N, K)
    first, mass = first_and_sum(labels, weights)
    return torch.where(first, torch.special.entr(mass), 0).sum(1)
