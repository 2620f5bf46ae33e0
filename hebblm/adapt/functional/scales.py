"""Scores, distances and closeness relative to those that a query sees, independent of the scale of
a model's states.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import Scale

KernelNormalization = Literal["raw", "sum", "max"]

ROUNDING = 100  # machine epsilons of the scores' size: a spread below is that of rounding


def relative_distances(distances: Tensor, mask: Tensor) -> Tensor:
    """Return ``d_k^2`` over the mean of the ``d^2`` that the query sees.

    Args:
        distances: (N, K) squared L2 distances.
        mask: (N, K) bool, the entries a query sees.

    Returns:
        (N, K); 0 for entries outside the mask, and if every distance is 0.
    """
    seen = torch.where(mask, distances, 0)
    mean = seen.sum(1, keepdim=True) / _count(mask, seen)  # (N, 1)
    return seen / mean.clamp_min(torch.finfo(seen.dtype).tiny)


def kernel_weight(
    distances: Tensor,
    mask: Tensor,
    *,
    eps: float,
    normalization: KernelNormalization = "raw",
    scale: Scale = "absolute",
) -> Tensor:
    """Weigh neighbours by ``c_k = 1 / (eps + d_k^2)``, d_k = ||h - h_k|| (the kernel of Sprechmann
    et al. 2018).

    ``relative`` takes the mean of the query's ``d^2`` as the unit, ``c_k = 1 / (eps + d_k^2 / mean
    d^2)``, so that eps and c have no unit. All c are equal if every neighbour is an exact
    duplicate.

    Args:
        distances: (N, K) squared L2 distances.
        mask: (N, K) bool, True for a real entry.
        eps: keeps the closeness of an exact duplicate finite; above 0.
        normalization: ``raw`` as they are, ``sum`` scaled to sum 1 for each query, ``max`` to
            maximum 1.
        scale: unit of eps and the distances; ``absolute`` as printed.

    Returns:
        (N, K) weights, 0 where the mask leaves out.

    Raises:
        UserError: eps <= 0, or an unknown normalisation or scale.
    """
    checks.above_zero("eps", eps)
    checks.one_of("normalization", normalization, get_args(KernelNormalization))
    checks.one_of("scale", scale, get_args(Scale))
    if scale == "relative":
        distances = relative_distances(distances, mask)
    weights = torch.where(mask, 1 / (eps + distances), 0)  # (N, K)
    if normalization == "raw" or weights.shape[-1] == 0:
        return weights
    whole = (
        weights.sum(-1, keepdim=True) if normalization == "sum" else weights.amax(-1, keepdim=True)
    )
    return torch.where(mask, weights / whole, 0)  # a query without entries would divide 0 by 0


def log_weights(scores: Tensor, mask: Tensor, *, sharpness: float, scale: Scale) -> Tensor:
    """Return ``sharpness * s_k``, with s ``absolute`` as it is or ``relative`` to its spread.

    The spread is the standard deviation of s over the entries that the query sees. The mean is
    subtracted as well, which changes no softmax but keeps digits. If all differences are rounding,
    all weights are equal.

    Args:
        scores: (N, K) s, e.g. ``h_k . h`` or ``-||h_k - h||^2``.
        mask: (N, K) bool, the entries a query sees.
        sharpness: theta, or one over a temperature.
        scale: unit of s.

    Returns:
        (N, K) unnormalised log-weights; unspecified for entries outside the mask.

    Raises:
        UserError: an unknown scale.
    """
    checks.one_of("scale", scale, get_args(Scale))
    if scale == "absolute":
        return sharpness * scores
    count, kind = _count(mask, scores), torch.finfo(scores.dtype)
    seen = torch.where(mask, scores, 0)
    centred = torch.where(mask, scores - seen.sum(1, keepdim=True) / count, 0)
    size, spread = (
        x.square().sum(1, keepdim=True).div(count).sqrt() for x in (seen, centred)
    )  # (N, 1)
    floor = (ROUNDING * kind.eps * size).clamp_min(kind.tiny)
    return sharpness * (centred / torch.maximum(spread, floor))


def _count(mask: Tensor, like: Tensor) -> Tensor:
    """Return how many entries each query sees (N, 1), at least 1."""
    return mask.sum(1, keepdim=True).clamp_min(1).to(like.dtype)
