"""Mixtures whose shares depend on the query: softmax gates, their features, and how they are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from hebblm.adapt.functional.grouping import label_sums

TRUST = log(9.0)  # log-odds of a gate against its anchor before anything was scored: 9 to 1
SURE = log(1999.0)  # their limits: less than 1/2000 of a share is never left, and costs less than 1/1999 nats a token


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
    logits of the shares is ``w - r``. After each interval, every share of which was as before it, a step of AdaGrad
    (Duchi, Hazan and Singer 2011) with a weight of its own for every entry::

        S <- S + sum_t (r_t - w_t)^2 (x_t^2)^T
        G <- G + rate sum_t (r_t - w_t) x_t^T / sqrt(1 + S)

    The mixture stays close to one of its parts, the ``anchor``, or does better: gate and anchor are mixed by how likely
    each made the tokens so far. The log-odds of the gate grow by the anchor's loss less the gate's, within ``SURE``.

    Args:
        weights: (C, F) float64 G.
        rate: of a step.
        anchor: number of the part; None for none.
        squares: (C, F) float64 S; None for zeros.
        odds: log of the odds of the gate against the anchor, nats.
    """

    weights: Tensor
    rate: float
    anchor: int | None = None
    squares: Tensor | None = None
    odds: float = TRUST

    def log_shares(self, features: Tensor) -> Tensor:
        """Log-shares (N, C) of queries with features (N, F); see :func:`anchored`."""
        shares = log_softmax_shares(features, self.weights.expand(len(features), -1, -1))
        return anchored(shares, self.weights.new_tensor([self.odds]), self.anchor)

    def after(self, evidence: Sequence[Sequence[float]]) -> LearnedGate:
        """Gate once more tokens were scored, by the losses of each under the parts, nats, and its features, (n, C + F).

        A token that says nothing is nan; one that every part gave nothing is left out as well.
        """
        rows = self.weights.new_tensor(evidence)
        losses, features = rows[:, : len(self.weights)], rows[:, len(self.weights) :]
        usable = losses.isfinite().any(1) & features.isfinite().all(1)
        if not usable.any():
            return self
        losses, features = losses[usable], features[usable]
        shares = log_softmax_shares(features, self.weights.expand(len(losses), -1, -1))  # (n, C)
        owned = (shares - losses).softmax(1)
        change = owned - shares.exp()  # (n, C)
        squares = (change**2).t() @ features**2 + (0 if self.squares is None else self.squares)  # (C, F)
        weights = self.weights + self.rate * (change.t() @ features) / (1 + squares).sqrt()
        odds = self.odds
        if self.anchor is not None:
            gain = float((losses[:, self.anchor] - gated_losses(losses, shares)).sum())
            odds = max(-SURE, min(SURE, odds + gain))
        return replace(self, weights=weights, squares=squares, odds=odds)

    @property
    def doubted(self) -> LearnedGate:
        """The gate at the beginning of another text, where what it learned may mislead: as likely as its anchor."""
        return self if self.squares is None else replace(self, odds=min(self.odds, 0.0))

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Weights, squares and odds in a row."""
        squares = torch.zeros_like(self.weights) if self.squares is None else self.squares
        return *self.weights.flatten().tolist(), *squares.flatten().tolist(), self.odds

    def from_floats(self, numbers: Sequence[float]) -> LearnedGate:
        """Return the gate that was known when :attr:`as_floats` were kept."""
        size = self.weights.numel()
        weights, squares = (
            self.weights.new_tensor(numbers[begin : begin + size]).view_as(self.weights) for begin in (0, size)
        )
        return replace(self, weights=weights, squares=squares, odds=numbers[-1])


def anchored(log_shares: Tensor, odds: Tensor, anchor: int | None) -> Tensor:
    """Return the log-shares of parts once the anchor has its own share of the whole.

    Args:
        log_shares: (N, C) of the gate.
        odds: (N,) or (1,) log-odds of the gate against the anchor, nats.
        anchor: number of the part; None changes nothing.
    """
    if anchor is None:
        return log_shares
    shares = log_shares + torch.nn.functional.logsigmoid(odds)[:, None]
    whole = torch.nn.functional.logsigmoid(-odds).expand(len(shares))
    shares[:, anchor] = torch.logaddexp(shares[:, anchor], whole)
    return shares
