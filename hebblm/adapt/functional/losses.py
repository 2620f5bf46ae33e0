"""The loss of one label per query, without forming its distribution.

Every method here changes the base's distribution at the labels of K entries and renormalises, so
that the loss of a target costs O(K) a query once the base's normaliser is known. Each function
equals gathering from its dense counterpart up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.functional.mixture_weights import mixed
from hebblm.runtime.blocks import blocks

# If less than this is left of the old normaliser, the new one is a difference of nearly equal
# numbers.
DOUBTFUL = -0.75


def memory_losses(scores: Tensor, labels: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    """Return ``-log q(y)`` (N,) in nats with ``q(y) = sum_k 1[y_k = y] softmax(s)_k`` for each
    query's target.

    It is +inf if the query sees no entry with the target as its label.
    """
    seen = scores.masked_fill(~mask, -torch.inf)
    total = seen.logsumexp(1)  # (N,)
    matching = _matching(seen, labels, targets)
    return torch.where(matching == -torch.inf, torch.inf, total - matching)


def mixture_losses(
    base: Tensor, scores: Tensor, labels: Tensor, mask: Tensor, weight: float, targets: Tensor
) -> Tensor:
    """Return the loss of ``(1 - w) p + w q``, as :func:`memory_mixture` forms it, for each query's
    target.

    Args:
        base: (N,) losses of the targets under p, nats.
        scores: (N, K) unnormalised log-weights of the entries.
        labels: (N, K) int64, or (1, K).
        mask: (N, K) bool, the entries a query sees.
        weight: share w of the memory, within [0, 1].
        targets: (N,) int64.

    Returns:
        (N,) nats: the base's for w = 0 and for a query that sees no entry.

    Raises:
        UserError: weight outside [0, 1].
    """
    if scores.shape[1] == 0:
        return base
    losses = -mixed(-memory_losses(scores, labels, mask, targets), -base, weight)
    return torch.where(mask.any(1), losses, base)


def logit_sum_losses(
    logits: Tensor,
    normalizer: Tensor,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    weight: float,
    targets: Tensor,
) -> Tensor:
    """Return the loss of ``P(y) ~ (1 - w) exp(f_y) + w sum_k 1[y_k = y] exp(s_k)`` for each query's
    target.

    Args:
        logits: (N,) f of the target.
        normalizer: (N,) logsumexp of f.
        scores: (N, K) s.
        labels: (N, K) int64.
        mask: (N, K) bool, the entries a query sees.
        weight: share w of the memory, within [0, 1].
        targets: (N,) int64.

    Returns:
        (N,) nats: the base's for w = 0 and for a query that sees no entry.

    Raises:
        UserError: weight outside [0, 1].
    """
    checks.share("weight", weight)
    base = normalizer - logits
    if weight == 0:
        return base
    seen = scores.masked_fill(~mask, -torch.inf)
    total = mixed(seen.logsumexp(1), normalizer, weight)  # (N,)
    matching = _matching(seen, labels, targets)
    return torch.where(mask.any(1), total - mixed(matching, logits, weight), base)


def _matching(scores: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """``log sum_k 1[y_k = y] exp(s_k)`` (N,) for scores (N, K): only the few entries that match are
    summed.
    """
    row, column = (labels == targets[:, None]).nonzero(as_tuple=True)
    scores_there = scores[row, column]
    peaks = scores.new_full((len(scores),), -torch.inf).scatter_reduce_(
        0, row, scores_there, "amax"
    )
    # an entry out of sight is -inf, and so may be the peak
    safe = peaks.clamp_min(torch.finfo(peaks.dtype).min)
    sums = torch.zeros_like(peaks).scatter_add_(0, row, (scores_there - safe[row]).exp())
    return safe + sums.log()


def changed_losses(
    dense: Tensor,
    normalizer: Tensor,
    labels: Tensor,
    chosen: Tensor,
    changes: Tensor,
    targets: Tensor,
) -> Tensor:
    """Return the loss under logits that equal ``dense`` except for some classes of each query,
    which change by c_i.

    The new normaliser is ``1 + sum_i (p_i e^c_i - p_i)`` times the old one, p the distribution
    under ``dense``. Where little would be left, or a term overflows, that query's normaliser is
    summed again over all classes.

    Args:
        dense: (N, V) logits.
        normalizer: (N,) their logsumexp.
        labels: (N, K) int64, classes that may change.
        chosen: (N, K) bool, one entry for each class that does change.
        changes: (N, K) c_i of each entry's label.
        targets: (N,) int64.

    Returns:
        (N,) nats.
    """
    label_log_probs = dense.gather(1, labels) - normalizer[:, None]  # log p_i (N, K)
    # (N,) new over old normaliser, less 1
    moved = torch.where(chosen, (label_log_probs + changes).exp() - label_log_probs.exp(), 0).sum(1)
    grown = moved.double().log1p()
    # One query at a time: the bits of a sum may depend on the number of sums.
    for row in (~((moved > DOUBTFUL) & (moved < torch.inf))).nonzero().flatten().tolist():
        in_row = chosen[row]
        logits = (
            dense[row].double().index_add(0, labels[row, in_row], changes[row, in_row].double())
        )
        grown[row] = logits.logsumexp(0) - normalizer[row]
    # the target's change (N,)
    change_of_target = torch.where(chosen & (labels == targets[:, None]), changes, 0).sum(1)
    plain = normalizer - dense.gather(1, targets[:, None]).squeeze(1)
    return (plain + grown - change_of_target).to(dense.dtype)


def growth(logits: Tensor, normalizer: Tensor, change: Tensor, weights: Tensor) -> Tensor:
    """Return ``log sum_v p_v exp(w d_v)``: the increase of the logits' logsumexp by a change at
    some weights.

    A few queries at a time are exponentiated without subtracting a maximum, while they are in the
    caches. A sum that leaves the range of the dtype is taken again with its maximum subtracted.

    Args:
        logits: (N, V) f, with p their softmax.
        normalizer: (N,) their logsumexp, nats.
        change: (N, V) d, finite.
        weights: (N, W) w of each query.

    Returns:
        (N, W) nats.
    """
    sums = weights.new_empty(weights.shape, dtype=logits.dtype)
    for block in blocks(3 * logits.element_size() * logits.shape[1], len(logits), logits.device):
        log_probs = logits[block] - normalizer[block, None]  # log p (n, V)
        for column in range(weights.shape[1]):
            weight = weights[block, column, None].to(logits.dtype)
            torch.sum(
                torch.addcmul(log_probs, change[block], weight).exp_(), 1, out=sums[block, column]
            )
    grown, limits = sums.log(), torch.finfo(logits.dtype)
    extreme = ~((sums > limits.tiny / limits.eps) & (sums < limits.max))
    for row, column in extreme.nonzero().tolist():
        changed = logits[row] + weights[row, column].to(logits.dtype) * change[row]
        grown[row, column] = changed.logsumexp(0) - normalizer[row]
    return grown
