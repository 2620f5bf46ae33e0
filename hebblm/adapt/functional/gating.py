"""Mixtures whose shares depend on the query: softmax gates, their features, and how they are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hebblm.adapt.functional.grouping import label_sums


def label_entropy(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return the entropy (N,) in nats of the labels under ``softmax(s)``; 0 for a query that sees no entry.

    Args:
        scores: (N, K) unnormalised log-weights.
        labels: (N, K) int64.
        mask: (N, K) bool, the entries a query sees.
    """
    weights = scores.masked_fill(~mask, -torch.inf).softmax(1).nan_to_num(0.0)  # (N, K)
    mass: Tensor = torch.special.entr(label_sums(labels, weights))  # (N, K)
    return mass.sum(1)


def gated_losses(losses: Tensor, log_shares: Tensor) -> Tensor:
    """Return ``-log sum_c w_c exp(-l_c)`` (N,) nats, +inf where every part gives the label nothing.

    Args:
        losses: (N, C) of each part, nats.
        log_shares: (N, C) log w.
    """
    return -(log_shares - losses).logsumexp(1)


def log_softmax_shares(features: Tensor, weights: Tensor) -> Tensor:
    """Return ``log softmax_c(sum_f W_cf x_f)`` (N, C).

    Each row is summed by itself, so that its bits do not depend on the others.

    Args:
        features: (N, F) x.
        weights: (N, C, F) G.
    """
    return (weights * features[:, None]).sum(2).log_softmax(1)


@dataclass(frozen=True, slots=True, eq=False)
class LearnedGate:
    """The weights G of a gate whose shares are ``w = softmax(G x)``, learned online by the loss of their mixture.

    A token y is part c's with probability ``r_c = w_c p_c(y) / sum_j w_j p_j(y)``, and the gradient of the loss in the
    logits of the shares is ``w - r``. After each interval, every share of which was as before it::

        G <- G + rate sum_t (r_t - w_t) x_t^T

    Args:
        weights: (C, F) float64 G.
        rate: of a token's step.
    """

    weights: Tensor
    rate: float

    def after(self, evidence: Sequence[Sequence[float]]) -> LearnedGate:
        """Gate once more tokens were scored, by the losses of each under the parts, nats, and its features, (n, C + F).

        A token that says nothing is nan; one that every part gave nothing is left out as well.
        """
        rows = self.weights.new_tensor(evidence)
        losses, features = rows[:, : len(self.weights)], rows[:, len(self.weights) :]
        says = losses.isfinite().any(1) & features.isfinite().all(1)
        if not says.any():
            return self
        losses, features = losses[says], features[says]
        shares = log_softmax_shares(features, self.weights.expand(len(losses), -1, -1))  # (n, C)
        owned = (shares - losses).softmax(1)
        step = (owned - shares.exp()).t() @ features  # (C, F)
        return replace(self, weights=self.weights + self.rate * step)

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Weights in a row."""
        return tuple(self.weights.flatten().tolist())

    def from_floats(self, numbers: Sequence[float]) -> LearnedGate:
        """Gate as it was when :attr:`as_floats` were saved."""
        return replace(self, weights=self.weights.new_tensor(numbers).view_as(self.weights))
