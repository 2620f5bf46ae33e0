"""Top-1 accuracy on new classes, old classes and all, and how it comes about along a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hebblm.vision.result import spread

KEYS = ("new", "old", "overall")
POINTS = 100  # of a curve

Top1 = dict[str, float | None]
"""Shares of right answers by ``new``, ``old`` and ``overall``; None where there is no such picture."""


def top1(classes: Tensor, labels: Tensor, new: Tensor) -> Top1:
    """Return the accuracies of predictions.

    Args:
        classes: (n,) uint8.
        labels: (n,) int64.
        new: (C,) bool.
    """
    right, is_new = classes == labels, new[labels]
    everything = torch.ones_like(is_new)
    return {
        key: float(right[part].double().mean()) if bool(part.any()) else None
        for key, part in zip(KEYS, (is_new, ~is_new, everything), strict=True)
    }


def along(classes: Tensor, labels: Tensor, new: Tensor, interval: int) -> list[dict[str, Any]]:
    """Return the accuracies over the first ``at`` pictures, at no more than a hundred ends of intervals."""
    ends = list(range(interval, len(labels) + 1, interval))
    ends = ends[:: -(-len(ends) // POINTS)] if ends else []
    if not ends or ends[-1] != len(labels):
        ends.append(len(labels))
    return [{"at": end, **top1(classes[:end], labels[:end], new)} for end in ends]


def over_seeds(scores: Sequence[Top1]) -> dict[str, dict[str, float | None] | None]:
    """Return mean and standard deviation of each accuracy; None where a seed has none."""
    return {key: spread([score[key] for score in scores]) for key in KEYS}
