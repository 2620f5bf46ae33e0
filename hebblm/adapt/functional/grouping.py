"""Neighbours of one label taken together, without forming anything as wide as the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def group_ids(labels: Tensor) -> Tensor:
    """Number the labels of each row so that equal labels, and only these, share a number below K.

    Args:
        labels: (N, K) int64.

    Returns:
        (N, K) int64 in [0, K): the rank of the label's first occurrence among the sorted labels of its row.
    """
    labels = labels.contiguous()
    return torch.searchsorted(labels.sort(dim=-1).values, labels)


def group_sizes(labels: Tensor, member: Tensor) -> Tensor:
    """Count, for each entry, the members of its row that carry its label.

    Args:
        labels: (N, K) int64.
        member: (N, K) bool, which entries count.

    Returns:
        (N, K) int64, |N_i| for the label i of each entry.
    """
    ids = group_ids(labels)
    sizes = torch.zeros_like(ids).scatter_add_(1, ids, member.to(ids.dtype))
    return sizes.gather(1, ids)


def group_logsumexp(scores: Tensor, labels: Tensor) -> Tensor:
    """Return ``log sum_j 1[y_j = y_k] exp(s_j)`` for each entry k, without overflow.

    Args:
        scores: (N, K) floats; -inf takes an entry out.
        labels: (N, K) int64, or (1, K) where every row has the same labels.

    Returns:
        (N, K) floats; -inf where every entry of the label is -inf.
    """
    ids = group_ids(labels).expand(scores.shape)
    low = torch.finfo(scores.dtype).min
    peaks = torch.full_like(scores, low).scatter_reduce_(1, ids, scores, "amax")  # (N, K) by group
    sums = torch.zeros_like(scores).scatter_add_(1, ids, (scores - peaks.gather(1, ids)).exp())
    return (peaks + sums.log()).gather(1, ids)
