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
    pulled = logits.new_zeros(logits.shape[0], logits.shape[2])  # sum_k alpha_k Y_k
    pulled = pulled.scatter_add_(1, labels, alpha).unsqueeze(1)
    count = 2 + tails.doubt.shape[1]
    moved = logits.new_zeros(logits.shape[0], count, logits.shape[2])  # by alpha, by drift, by doubt
    left = torch.zeros_like(alpha)
    for step in range(steps):
        if step > 0:
            torch.softmax(logits, 2, out=probs)  # P
        held = probs[:, :, -1]  # (n, K)
        if keep is not None:
            left, moved = left * keep.squeeze(2), moved * keep
        left = left + held
        uncertain = (alpha * held).unsqueeze(1)  # (n, 1, K)
        drifted = uncertain * (logits[:, :, -1] - start).unsqueeze(1)
        rows = [alpha.unsqueeze(1), drifted, uncertain * tails.doubt]
        onward = mixing if last or step + 1 < steps else None
        if onward is not None:
            rows.append(onward.read())
        products = torch.cat(rows, 1) @ probs  # (n, 2 + P + r, A + 1)
        moved = moved - products[:, :count]
        moved[:, :1] += pulled
        if onward is not None:
            if base is not None and keep is not None:
                logits.sub_(base).mul_(keep).add_(base)
            onward.add_to(logits, probs, products[:, count:], labels, overlap)  # no label lies in the tail
    return Path(moved[:, 0], left, moved[:, 2:, :-1], moved[:, 1, :-1], logits)
