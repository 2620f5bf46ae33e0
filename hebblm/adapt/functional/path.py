"""The descent itself, on the classes that are followed and the tail as one more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.mixing import Mixing
from hebblm.adapt.functional.tail import TailLogit


@dataclass(frozen=True, slots=True)
class Path:
    """What S steps of descent did on A and, as one class, outside it.

    Args:
        change: (n, A + 1) change of the query's logits on A, and minus the mass moved out of its tail.
        left: (n, K) tail mass of each key, summed over the steps.
        doubt: (n, P, A) change on A for each part of what is in doubt about the tails.
        drift: (n, A) change on A for tails that had not moved.
        logits: (n, K, A + 1) of the keys, after the last step if its effect is watched.
    """

    change: Tensor
    left: Tensor
    doubt: Tensor
    drift: Tensor
    logits: Tensor


def follow(
    logits: Tensor,
    probs: Tensor,
    labels: Tensor,
    alpha: Tensor,
    tails: TailLogit,
    mixing: Mixing | None,
    *,
    keep: Tensor | None,
    overlap: Tensor,
    steps: int,
    last: bool,
) -> Path:
    """Follow the descent in the span of the keys: ``Z <- Z + M R``, ``delta <- delta + R^T alpha``.

    Args:
        logits: (n, K, A + 1) base logits of the keys, the tail last; overwritten.
        probs: (n, K, A + 1) P of the first step; overwritten.
        labels: (n, K) positions of the labels in A.
        alpha: (n, K).
        tails: what is known of the last column.
        mixing: M; may be None where a single step is followed and its effect not asked for.
        keep: (n, 1, 1) what the pull toward the base head leaves of a change; None without a pull.
        overlap: (n, 1) ``sum_v q_v^2`` of the tail.
        steps: number S of steps.
        last: whether the last step's effect on the keys is wanted.
    """
    base = None if keep is None else logits.clone()
    start = tails.logit
    count = 2 + tails.doubt.shape[1]
    others = alpha.new_zeros(alpha.shape[0], count - 1, alpha.shape[1])
    read = [] if mixing is None else [mixing.read()]
    rows = torch.cat([alpha.unsqueeze(1), others, *read], 1)  # alpha, drift, doubt, and what M has to be told
    # The rows' products with Y: those of drift and doubt are zero, as no label lies in the tail.
    drawn = logits.new_zeros(*rows.shape[:2], logits.shape[2])
    drawn.scatter_add_(2, labels.unsqueeze(1).expand_as(rows), rows)  # (n, 2 + P + r, A + 1)
    moved = logits.new_zeros(logits.shape[0], count, logits.shape[2])  # by alpha, by drift, by doubt
    left = torch.zeros_like(alpha)
    for step in range(steps):
        if step > 0:
            torch.softmax(logits, 2, out=probs)  # P
        held = probs[:, :, -1]  # (n, K)
        if keep is not None:
            left.mul_(keep.squeeze(2))
            moved.mul_(keep)
        left += held
        uncertain = alpha * held
        if step > 0:
            rows[:, 1] = uncertain * (logits[:, :, -1] - start)
        if count > 2:
            rows[:, 2:count] = uncertain.unsqueeze(1) * tails.doubt
        onward = mixing if last or step + 1 < steps else None
        told = rows.shape[1] if onward is not None else count
        products = torch.baddbmm(drawn[:, :told], rows[:, :told], probs, alpha=-1)  # with Y - P
        moved += products[:, :count]
        if onward is not None:
            if base is not None and keep is not None:
                logits.sub_(base).mul_(keep).add_(base)
            onward.add_to(logits, probs, products[:, count:], labels, overlap)
    return Path(moved[:, 0], left, moved[:, 2:, :-1], moved[:, 1, :-1], logits)
