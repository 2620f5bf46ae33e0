"""The classes outside the active set: what they hold, their shape, and what taking them as one class costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional.problem import Problem

PARTS = 8  # of a sample of the tail, compared with each other
NEGLIGIBLE = -80.0  # log of a probability that is as good as zero; smaller ones are slow to compute


@dataclass(frozen=True, slots=True)
class Tail:
    """A query's own distribution outside the active set.

    Args:
        probabilities: (n, V) of the base, zero on the active set.
        mass: (n, 1) their sum.
        overlap: (n, 1) ``sum_v q_v^2`` of the shape ``q = probabilities / mass``.
    """

    probabilities: Tensor
    mass: Tensor
    overlap: Tensor

    @classmethod
    def outside(cls, base_probs: Tensor, chosen: Tensor) -> Tail:
        """Return the tail of ``base_probs`` (n, V) outside ``chosen`` (n, A)."""
        probabilities = base_probs.scatter(1, chosen, 0.0)
        mass = probabilities.sum(1, keepdim=True).clamp_max(1.0)
        squares = torch.linalg.vector_norm(probabilities, dim=1, keepdim=True) / positive(mass)
        return cls(probabilities, mass, squares.square())

    def rows(self, index: slice | Tensor) -> Tail:
        """Return the same for some of the queries."""
        return Tail(self.probabilities[index], self.mass[index], self.overlap[index])

    def shape(self) -> Tensor:
        """Return q (n, V), which sums to one."""
        return self.probabilities / positive(self.mass)

    def quantiles(self, count: int) -> Tensor:
        """Return ``count`` classes (n, m) at equal steps of the tail's distribution.

        They stand for it with less variance than a draw, and with nothing random.
        """
        reached = self.probabilities.cumsum(1)  # (n, V)
        levels = (torch.arange(count, device=reached.device, dtype=reached.dtype) + 0.5) / count
        found = torch.searchsorted(reached, levels * reached[:, -1:])  # (n, m)
        return found.clamp_max_(reached.shape[1] - 1)


@dataclass(frozen=True, slots=True)
class TailLogit:
    """All classes outside the active set as one class of each key.

    Args:
        logit: (n, K) log of the sum of their exponentials.
        doubt: (n, P, K) parts, independent of each other, of the relative error to be expected of that sum; signed,
            as the errors of the keys go together. P is 0 where the sum is known to rounding.
    """

    logit: Tensor
    doubt: Tensor


def known_tail(problem: Problem, logits: Tensor, log_normalizers: Tensor) -> tuple[TailLogit, Tensor]:
    """Return what the stored normaliser leaves for the classes outside A, and the probabilities of the first step.

    Args:
        problem: the queries and their neighbours.
        logits: (n, K, A + 1) base logits of the keys on A; the last column is not looked at.
        log_normalizers: (n, K) logsumexp of the base logits of each key over all classes.

    Returns:
        The tails, and P (n, K, A + 1).
    """
    limits = torch.finfo(logits.dtype)
    # An entry that is not there gets all its mass outside A, and weighs nothing.
    total = torch.where(problem.weights > 0, log_normalizers.to(logits.dtype), limits.max / 4)  # (n, K)
    probs = (logits - total.unsqueeze(2)).clamp_min_(NEGLIGIBLE).exp_()
    followed = probs[:, :, :-1].sum(2)  # (n, K), above 1 by rounding alone
    share = (1 - followed).clamp_min_(0)
    probs[:, :, -1] = share
    probs.mul_(followed.clamp_min_(1).reciprocal_().unsqueeze(2))
    none = share.new_zeros(share.shape[0], 0, share.shape[1])
    return TailLogit(total + share.clamp_min(limits.tiny).log(), none), probs  # an empty tail stays finite


def sampled_tail(problem: Problem, chosen: Tensor, count: int) -> TailLogit:
    """Estimate the tail of each key from classes of the tail at the neighbours' mean key m.

    ``sum_tail exp(Z_k[v]) = sum_tail exp(Z_m[v]) * E[exp(r_v)]`` with ``r_v = Z_k[v] - Z_m[v]`` and v from that at m.
    The mean of r itself is ``(h_k - m) . E[W_v]``, so that only what is not linear in it is left to the sample.
    Estimates from parts of the sample say by their differences what to expect of the whole.

    Args:
        problem: the queries and their neighbours.
        chosen: (n, A) the active set.
        count: classes in the sample, rounded up to whole parts.
    """
    center = mean_key(problem, problem.weights)  # m (n, D)
    logits = problem.head.logits(center)  # (n, V)
    log_normalizer = logits.logsumexp(1, keepdim=True)
    tail = Tail.outside((logits - log_normalizer).exp_(), chosen)
    size = -(-count // PARTS)
    picked = tail.quantiles(size * PARTS)  # (n, m)
    ratios = logits_of(problem, picked).sub_(logits.gather(1, picked).unsqueeze(1))  # r (n, K, m)
    mean_row = (tail.shape() @ problem.head.weight).unsqueeze(2)  # E[W_v] (n, D, 1)
    mean = ((problem.keys - center.unsqueeze(1)) @ mean_row).squeeze(2)  # E[r_v] (n, K)
    parts = ratios.view(*ratios.shape[:2], size, PARTS)  # every PARTS-th class
    estimates = parts.logsumexp(2) - parts.mean(2)  # (n, K, PARTS)
    together = estimates.logsumexp(2)  # (n, K)
    scale = positive(tail.mass).log() + log_normalizer - math.log(size * PARTS)
    portions = (estimates - together.unsqueeze(2)).exp()  # of each part, 1 / PARTS if they agree
    differences = (portions[:, :, ::2] - portions[:, :, 1::2]).transpose(1, 2)  # (n, P, K)
    return TailLogit(scale + mean + together, differences)


def logits_of(problem: Problem, classes: Tensor) -> Tensor:
    """Return the base logits of the keys on some classes: (n, K, A) for classes (n, A)."""
    weight, bias = problem.head.weight, problem.head.bias
    rows = weight.index_select(0, classes.flatten()).view(*classes.shape, -1).transpose(1, 2)  # (n, D, A)
    if bias is None:
        return problem.keys @ rows
    return torch.baddbmm(bias[classes].unsqueeze(1), problem.keys, rows)


def adapted(inside: Tensor, mass: Tensor, change: Tensor) -> Tensor:
    """Return the adapted probabilities (n, A) of base probabilities (n, A); the tail (n, 1) keeps its mass."""
    grown = inside.log() + change
    whole = torch.logaddexp(grown.logsumexp(1, keepdim=True), mass.log())
    return (grown - whole).exp()


def mean_key(problem: Problem, sizes: Tensor) -> Tensor:
    """Return the neighbours' mean key (n, D), weighted by ``sizes`` (n, K), which are not negative."""
    return torch.einsum("nk,nkd->nd", sizes / positive(sizes.sum(1, keepdim=True)), problem.keys)


def positive(values: Tensor) -> Tensor:
    """Keep a mass above zero, for logarithms and quotients."""
    return values.clamp_min(torch.finfo(values.dtype).tiny)
