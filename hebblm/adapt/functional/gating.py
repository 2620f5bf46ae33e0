"""Mixtures whose shares depend on the query: softmax gates, their features, and their learning rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from hebblm.adapt.functional.grouping import label_sums

TRUST = log(9.0)  # log-odds of a gate against its anchor before the first token: 9 to 1
SURE = log(
    1999.0
)  # their limits: each side keeps a share of at least 1/2000, which costs less than 1/1999 nats a token


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
    """Return ``-log sum_c w_c exp(-l_c)`` (N,) nats, +inf if every part gives the label probability 0.

    Args:
        losses: (N, C) losses of the parts, nats.
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
    logits of the shares is ``w - r``. G stays fixed within an interval. After it comes a step of AdaGrad (Duchi, Hazan
    and Singer 2011) with its own weight for every entry::

        S <- S + sum_t (r_t - w_t)^2 (x_t^2)^T
        G <- G + rate sum_t (r_t - w_t) x_t^T / sqrt(1 + S)

    The mixture is never much worse than one of its parts, the ``anchor``. Gate and anchor are mixed by the likelihood
    that each gave the tokens so far: the log-odds of the gate grow by the anchor's loss minus the gate's, within
    ``SURE``.

    Args:
        weights: (C, F) float64 G.
        rate: rate of a step.
        anchor: number of the part; None for no anchor.
        squares: (C, F) float64 S; None for zeros.
        odds: log-odds of the gate against the anchor, nats.
    """

    weights: Tensor
    rate: float
    anchor: int | None = None
    squares: Tensor | None = None
    odds: float = TRUST

    def log_shares(self, features: Tensor) -> Tensor:
        """Return log-shares (N, C) of queries with features (N, F); see :func:`anchored`."""
        shares = log_softmax_shares(features, self.weights.expand(len(features), -1, -1))
        return anchored(shares, self.weights.new_tensor([self.odds]), self.anchor)

    def after(self, evidence: Sequence[Sequence[float]]) -> LearnedGate:
        """Return the gate after more tokens, given their losses under the parts, nats, and their features, (n, C + F).

        It ignores a token that is nan, and a token to which every part gave probability 0.
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
        """Return the gate for the beginning of another text: as likely as its anchor, since its weights may mislead."""
        return self if self.squares is None else replace(self, odds=min(self.odds, 0.0))

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Weights, squares and odds as one list."""
        squares = torch.zeros_like(self.weights) if self.squares is None else self.squares
        return *self.weights.flatten().tolist(), *squares.flatten().tolist(), self.odds

    def from_floats(self, numbers: Sequence[float]) -> LearnedGate:
        """Return the gate that :attr:`as_floats` came from."""
        size = self.weights.numel()
        weights, squares = (
            self.weights.new_tensor(numbers[begin : begin + size]).view_as(self.weights) for begin in (0, size)
        )
        return replace(self, weights=weights, squares=squares, odds=numbers[-1])


def anchored(log_shares: Tensor, odds: Tensor, anchor: int | None) -> Tensor:
    """Return the log-shares of the parts in the mixture of gate and anchor.

    Args:
        log_shares: (N, C) log-shares of the gate.
        odds: (N,) or (1,) log-odds of the gate against the anchor, nats.
        anchor: number of the part; None changes nothing.
    """
    if anchor is None:
        return log_shares
    shares = log_shares + torch.nn.functional.logsigmoid(odds)[:, None]
    whole = torch.nn.functional.logsigmoid(-odds).expand(len(shares))
    shares[:, anchor] = torch.logaddexp(shares[:, anchor], whole)
    return shares
