"""Groups of neighbours with the same label."""

from __future__ import annotations

import torch
from torch import Tensor

SCRATCH = 2**24  # places for labels at a time


def group_ids(labels: Tensor) -> Tensor:
    """Return numbers (N, K) int64, from 0 to K - 1, that are equal within a row for equal labels
    (N, K) only.

    A number is the position of one of the entries with the label. Every entry writes its position
    to a table at its label, and all entries of that label read the position that stayed: many times
    as fast as sorting.
    """
    if labels.numel() == 0:
        return labels.clone()
    classes = int(labels.max()) + 1
    positions = torch.arange(labels.shape[1], dtype=torch.int32, device=labels.device)
    ids = []
    for part in torch.split(labels, max(1, SCRATCH // classes)):
        # only the places that are written are read
        table = torch.empty(len(part), classes, dtype=torch.int32, device=labels.device)
        ids.append(table.scatter_(1, part, positions.expand_as(part)).gather(1, part))
    return (ids[0] if len(ids) == 1 else torch.cat(ids)).long()


def distinct(groups: Tensor, present: Tensor) -> Tensor:
    """Return the number (N,) of different labels among the entries present (N, K) bool, from
    :func:`group_ids`.
    """
    return (group_sums(groups, present.int()) > 0).sum(1)


def label_sums(labels: Tensor, values: Tensor) -> Tensor:
    """Sums of ``values`` (N, K) over the entries of each label (N, K), at one of these entries; 0
    at the others.
    """
    return group_sums(group_ids(labels), values)


def group_sums(groups: Tensor, values: Tensor) -> Tensor:
    """Sums of ``values``, (N, K) or several (m, N, K) at once, over the entries of each group (N,
    K).

    Each sum is at one of these entries, the same for all m; 0 at the others.
    """
    return torch.zeros_like(values).scatter_add_(-1, groups.expand(values.shape), values)


def group_logsumexp(scores: Tensor, labels: Tensor) -> Tensor:
    """``log sum_j 1[y_j = y_k] exp(s_j)`` (N, K) for each entry k, without overflow.

    The labels are (N, K), or (1, K) if every row has the same; a score of -inf takes an entry out.
    """
    ids = group_ids(labels).expand(scores.shape)
    low = torch.finfo(scores.dtype).min
    peaks = torch.full_like(scores, low).scatter_reduce_(1, ids, scores, "amax")  # (N, K) by group
    sums = torch.zeros_like(scores).scatter_add_(1, ids, (scores - peaks.gather(1, ids)).exp())
    return (peaks + sums.log()).gather(1, ids)
