"""Equations of kNN-LM and the continuous cache from hidden states on, in the parts that their rules
share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import Scale
from hebblm.adapt.functional.mixtures import memory_mixture
from hebblm.adapt.functional.scales import log_weights
from hebblm.types import Neighbors, OutputHead


def knn_log_probs(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    temperature: float,
    weight: float,
    scale: Scale = "absolute",
) -> Tensor:
    """Mix the base with the neighbours' labels, weighted by ``exp(-||h - h_k||^2 / T)`` (Khandelwal
    2020).
    """
    checks.some_neighbors(neighbors.values)
    checks.above_zero("temperature", temperature)
    distances = neighbors.distances.to(hidden.dtype)
    scores = log_weights(-distances, neighbors.mask, sharpness=1 / temperature, scale=scale)
    base = head.logits(hidden).log_softmax(1)
    return memory_mixture(base, scores, neighbors.values, neighbors.mask, weight)


def cache_log_probs(
    hidden: Tensor,
    window_keys: Tensor,
    window_values: Tensor,
    head: OutputHead,
    *,
    theta: float,
    weight: float,
    visible: Tensor | None = None,
    scale: Scale = "absolute",
) -> Tensor:
    """Mix the base with a window of recent tokens, weighted by ``exp(theta h_k . h)`` (Grave et al.
    2016).
    """
    checks.at_least("theta", theta, 0)
    products = hidden @ window_keys.t().to(hidden.dtype)  # (N, W)
    seen = torch.ones_like(products, dtype=torch.bool) if visible is None else visible
    scores = log_weights(products, seen, sharpness=theta, scale=scale)
    base = head.logits(hidden).log_softmax(1)
    return memory_mixture(base, scores, window_values.unsqueeze(0), seen, weight)
