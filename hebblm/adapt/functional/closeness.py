"""How much a neighbour counts, by its distance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hebblm.adapt.functional import checks

Normalization = Literal["raw", "sum", "max"]


def closeness(distances: Tensor, mask: Tensor, *, eps: float, normalization: Normalization = "raw") -> Tensor:
    """Weigh neighbours by ``c_k = 1 / (eps + ||h - h_k||^2)`` (the kernel of Sprechmann et al. 2018).

    Args:
        distances: (N, K) squared L2 distances.
        mask: (N, K) bool, True for a real entry.
        eps: what keeps an exact duplicate finite; above 0.
        normalization: ``raw`` as printed, ``sum`` scaled to sum 1 for each query, ``max`` to maximum 1.

    Returns:
        (N, K) weights, 0 where the mask leaves out.

    Raises:
        UserError: eps <= 0, or an unknown normalisation.
    """
    checks.above_zero("eps", eps)
    checks.one_of("normalization", normalization, ("raw", "sum", "max"))
    weights = torch.where(mask, 1 / (eps + distances), 0)  # (N, K)
    if normalization == "raw" or weights.shape[-1] == 0:
        return weights
    scale = weights.sum(-1, keepdim=True) if normalization == "sum" else weights.amax(-1, keepdim=True)
    return torch.where(mask, weights / scale, 0)  # a query without entries would divide 0 by 0
