"""The equations as printed, one query at a time: slow and plain; MbPA's and Hebb's are those of the
benchmark.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.types import Neighbors, OutputHead
from recipes.bench.naive import adapted_head, entries_of, hebb_logits, hebbian_change, mbpa_logits

__all__ = [
    "adapted_head",
    "entries_of",
    "hebb_logits",
    "hebbian_change",
    "knn_probs",
    "label_distribution",
    "mbpa_logits",
    "mixture_probs",
    "relative",
]


def relative(scores: Tensor) -> Tensor:
    """Return the scores (k,) in units of their standard deviation; 0 where they do not differ."""
    alike = scores.max() - scores.min() < 1e-12
    return torch.zeros_like(scores) if alike else scores / scores.std(unbiased=False)


def label_distribution(weights: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return q (V,) with ``q_i`` the share of the weights (k,) whose label is i."""
    return torch.stack([weights[labels == i].sum() for i in range(classes)]) / weights.sum()


def mixture_probs(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    theta: float,
    gamma: float,
    form: str = "linear",
    scale: str = "absolute",
) -> Tensor:
    """Return (N, V) probabilities of either form of Mixture, exponentials taken as they stand."""
    rows = []
    for row, query in enumerate(hidden):
        keys, labels, _ = entries_of(neighbors, row)
        logits = head.logits(query)
        if len(labels) == 0:
            rows.append(logits.softmax(0))
            continue
        products = keys @ query
        scores = (theta * (relative(products) if scale == "relative" else products)).exp()
        if form == "linear":
            rows.append(
                (1 - gamma) * logits.softmax(0)
                + gamma * label_distribution(scores, labels, len(logits))
            )
        else:
            sums = torch.stack([scores[labels == i].sum() for i in range(len(logits))])
            mixed = (1 - gamma) * logits.exp() + gamma * sums
            rows.append(mixed / mixed.sum())
    return torch.stack(rows)


def knn_probs(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    temperature: float,
    weight: float,
    scale: str = "absolute",
) -> Tensor:
    """Return (N, V) probabilities of kNN-LM."""
    rows = []
    for row, query in enumerate(hidden):
        _, labels, distances = entries_of(neighbors, row)
        base = head.logits(query).softmax(0)
        if len(labels) == 0:
            rows.append(base)
            continue
        scores = (-(relative(distances) if scale == "relative" else distances) / temperature).exp()
        rows.append((1 - weight) * base + weight * label_distribution(scores, labels, len(base)))
    return torch.stack(rows)
