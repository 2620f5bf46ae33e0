"""Distributions over remembered labels, and their interpolation with the base, in log space."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.checks import Scale
from hebblm.adapt.functional.grouping import group_logsumexp
from hebblm.adapt.functional.mixture_weights import mixed
from hebblm.adapt.functional.scales import log_weights
from hebblm.types import Neighbors, OutputHead

Form = Literal["linear", "logit-sum"]


def memory_mixture(
    base_log_probs: Tensor, scores: Tensor, labels: Tensor, mask: Tensor, weight: float
) -> Tensor:
    """Return ``log((1 - w) p + w q)`` with ``q(y) = sum_k 1[y_k = y] softmax(s)_k`` over remembered
    entries.

    Mixture, kNN-LM and the continuous cache differ in the scores s and in which entries they see.

    Args:
        base_log_probs: (N, V) log p in nats.
        scores: (N, K) unnormalised log-weights of the entries.
        labels: (N, K) int64, or (1, K) where every query sees the same entries.
        mask: (N, K) bool, the entries a query sees.
        weight: share w of the memory, within [0, 1].

    Returns:
        (N, V) log-probabilities in nats: the base's for w = 0 and for a query that sees no entry.

    Raises:
        UserError: weight outside [0, 1].
    """
    if scores.shape[1] == 0:
        return base_log_probs
    empty = ~mask.any(1, keepdim=True)  # (N, 1)
    hidden_entries = ~mask & ~empty  # a row with only -inf would normalise to nan
    log_weights = (
        scores.masked_fill(empty, 0.0).masked_fill(hidden_entries, -torch.inf).log_softmax(1)
    )
    log_q = group_logsumexp(log_weights, labels)  # (N, K) log q of each entry's label
    memory = torch.full_like(base_log_probs, -torch.inf).scatter_(
        1, labels.expand(scores.shape), log_q
    )  # (N, V)
    return torch.where(empty, base_log_probs, mixed(memory, base_log_probs, weight))


def mixture_from(
    base: Tensor,
    products: Tensor,
    neighbors: Neighbors,
    *,
    theta: float,
    gamma: float,
    form: Form = "linear",
    scale: Scale = "absolute",
) -> Tensor:
    """Compute :func:`mixture_log_probs` from quantities that several adapters share.

    Args:
        base: (N, V) base log-probabilities for ``linear``, base logits for ``logit-sum``.
        products: (N, K) ``h_k . h``.
        neighbors: the neighbours.
        theta: sharpness, at least 0.
        gamma: share of the memory, within [0, 1].
        form: as in :func:`mixture_log_probs`.
        scale: as in :func:`mixture_log_probs`.

    Returns:
        (N, V) log-probabilities in nats.

    Raises:
        UserError: a value out of range, an unknown form, K = 0, or ``logit-sum`` with relative
            scores.
    """
    checks.some_neighbors(neighbors.values)
    checks.at_least("theta", theta, 0)
    checks.share("gamma", gamma)
    checks.one_of("form", form, get_args(Form))
    checks.logits_or_linear(form, scale)
    scores = log_weights(products, neighbors.mask, sharpness=theta, scale=scale)
    if form == "linear":
        return memory_mixture(base, scores, neighbors.values, neighbors.mask, gamma)
    if gamma == 0:
        return base.log_softmax(1)
    base_share = math.log1p(-gamma) if gamma < 1 else -math.inf
    scores = scores.masked_fill(~neighbors.mask, -torch.inf)
    grouped = group_logsumexp(scores, neighbors.values)  # (N, K) by each entry's label
    taken = base.gather(1, neighbors.values) + base_share
    summed = (base + base_share).scatter_(
        1, neighbors.values, torch.logaddexp(taken, grouped + math.log(gamma))
    )
    return torch.where(neighbors.mask.any(1, keepdim=True), summed, base).log_softmax(1)


def mixture_log_probs(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    theta: float,
    gamma: float,
    form: Form = "linear",
    scale: Scale = "absolute",
) -> Tensor:
    """Mix the base with the neighbours' labels, weighted by ``exp(theta h_k . h)``.

    ``linear`` (Grave et al. 2016): ``P(y) = (1 - gamma) softmax(f)_y + gamma q_y`` with
    ``q_y = sum_k 1[y_k = y] softmax_k(theta h_k . h)``. ``logit-sum``, as the paper prints it:
    ``P(y) ~ (1 - gamma) exp(f_y) + gamma sum_k 1[y_k = y] exp(theta h_k . h)``. Both stay in log
    space, so that no theta overflows. ``relative`` divides h_k . h by its standard deviation over
    the neighbours.

    Args:
        hidden: (N, D) queries.
        neighbors: their neighbours.
        head: weight (V, D) and bias (V,) or None.
        theta: sharpness, at least 0.
        gamma: share of the memory, within [0, 1].
        form: ``linear`` or ``logit-sum``.
        scale: unit of h_k . h; ``absolute`` as printed.

    Returns:
        (N, V) log-probabilities in nats; the base's, bit for bit, for gamma = 0 and without
        entries.

    Raises:
        UserError: a value out of range, an unknown form, K = 0, or ``logit-sum`` with relative
            scores.
    """
    logits = head.logits(hidden)
    products = torch.einsum("nkd,nd->nk", neighbors.keys.to(hidden.dtype), hidden)
    base = logits.log_softmax(1) if form == "linear" else logits
    return mixture_from(base, products, neighbors, theta=theta, gamma=gamma, form=form, scale=scale)
