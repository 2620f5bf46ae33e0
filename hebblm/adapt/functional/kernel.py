"""Closeness kernel: the weight of a neighbour by its distance."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import Scale
from hebblm.adapt.functional.scales import relative_distances

ClosenessNormalization = Literal["raw", "sum", "max"]


def closeness(
    distances: Tensor,
    mask: Tensor,
    *,
    eps: float,
    normalization: ClosenessNormalization = "raw",
    scale: Scale = "absolute",
) -> Tensor:
    """Weigh neighbours by ``c_k = 1 / (eps + d_k^2)``, d_k = ||h - h_k|| (the kernel of Sprechmann et al. 2018).

    ``relative`` takes the mean of the query's ``d^2`` for the unit, ``c_k = 1 / (eps + d_k^2 / mean d^2)``, so that eps
    and c have none. All c are equal where every neighbour is an exact duplicate.

    Args:
        distances: (N, K) squared L2 distances.
        mask: (N, K) bool, True for a real entry.
        eps: what keeps an exact duplicate finite; above 0.
        normalization: ``raw`` as they are, ``sum`` scaled to sum 1 for each query, ``max`` to maximum 1.
        scale: unit of eps and the distances; ``absolute`` as printed.

    Returns:
        (N, K) weights, 0 where the mask leaves out.

    Raises:
        UserError: eps <= 0, or an unknown normalisation or scale.
    """
    checks.above_zero("eps", eps)
    checks.one_of("normalization", normalization, get_args(ClosenessNormalization))
    checks.one_of("scale", scale, get_args(Scale))
    if scale == "relative":
        distances = relative_distances(distances, mask)
    weights = torch.where(mask, 1 / (eps + distances), 0)  # (N, K)
    if normalization == "raw" or weights.shape[-1] == 0:
        return weights
    whole = weights.sum(-1, keepdim=True) if normalization == "sum" else weights.amax(-1, keepdim=True)
    return torch.where(mask, weights / whole, 0)  # a query without entries would divide 0 by 0
