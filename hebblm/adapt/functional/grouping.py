"""Neighbours of one label taken together."""

from __future__ import annotations

import torch
from torch import Tensor

SCRATCH = 2**24  # places for labels at a time


def group_ids(labels: Tensor) -> Tensor:
    """Number the labels of each row so that equal labels, and only these, share a number below K.

    Every entry writes its position to the place of its label, and all entries of that label read the one that stayed
    there: many times as fast as sorting, and what is not written is never read.

    Args:
        labels: (N, K) int64, none negative.

    Returns:
        (N, K) int64 in [0, K): the position of one of the entries with the label.
    """
    if labels.numel() == 0:
        return labels.clone()
    classes = int(labels.max()) + 1
    positions = torch.arange(labels.shape[1], dtype=torch.int32, device=labels.device)
    ids = []
    for some in torch.split(labels, max(1, SCRATCH // classes)):
        places = torch.empty(len(some), classes, dtype=torch.int32, device=labels.device)
        ids.append(places.scatter_(1, some, positions.expand_as(some)).gather(1, some))
    return (ids[0] if len(ids) == 1 else torch.cat(ids)).long()


def distinct(groups: Tensor, present: Tensor) -> Tensor:
    """Return how many different labels (N,) the entries that are present have.

    Args:
        groups: (N, K) int64, see :func:`group_ids`.
        present: (N, K) bool.
    """
    return (group_sums(groups, present.int()) > 0).sum(1)


def label_sums(labels: Tensor, values: Tensor) -> Tensor:
    """Return the sums of ``values`` (N, K) over the entries of each label (N, K); see :func:`group_sums`."""
    return group_sums(group_ids(labels), values)


def group_sums(groups: Tensor, values: Tensor) -> Tensor:
    """Return the sums of ``values`` over the entries of each group, at one of these entries; 0 at the others.

    Args:
        groups: (N, K) int64, see :func:`group_ids`.
        values: (N, K), or (m, N, K) for m of them at once.

    Returns:
        In the shape of the values; of several at once the sums of a group stand at the same entry.
    """
    return torch.zeros_like(values).scatter_add_(-1, groups.expand(values.shape), values)


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
