"""Mixtures whose shares depend on the query: softmax gates, their features, and their learning
rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

import torch
from torch import Tensor

from hebblm.adapt.functional.grouping import label_sums

FADING = 32.0  # tokens of a text after which a second set of weights counts for a third
DOUBT = 8.0  # texts that count for each side before the first one
UNBEGUN = 1e9  # place in a text whose beginning nothing was read before: as far from it as any
BEGINNING = 30  # tokens that tell whether the gate helps at the beginning of a text
TRUST = log(9.0)  # log-odds of a gate against its anchor before the first token: 9 to 1
# Limits of the log-odds: each side keeps a share of at least 1/2000, which costs less than 1/1999
# nats a token.
SURE = log(1999.0)


def label_entropy(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return the entropy (N,) in nats of the labels under ``softmax(s)``; 0 for a query that sees
    no entry.

    Args:
        scores: (N, K) unnormalised log-weights.
        labels: (N, K) int64.
        mask: (N, K) bool, the entries a query sees.
    """
    weights = scores.masked_fill(~mask, -torch.inf).softmax(1).nan_to_num(0.0)  # (N, K)
    mass: Tensor = torch.special.entr(label_sums(labels, weights))  # (N, K)
    return mass.sum(1)


def gated_losses(losses: Tensor, log_mixture_weights: Tensor) -> Tensor:
    """Return ``-log sum_c w_c exp(-l_c)`` (N,) nats, +inf if every part gives the label probability
    0.

    Args:
        losses: (N, C) losses of the parts, nats.
        log_mixture_weights: (N, C) log w.
    """
    return -(log_mixture_weights - losses).logsumexp(1)


def log_softmax_weights(features: Tensor, weights: Tensor) -> Tensor:
    """Return ``log softmax_c(sum_f W_cf x_f)`` (N, C).

    Each row is summed by itself, so that its bits do not depend on the others.

    Args:
        features: (N, F) x.
        weights: (N, C, F) G.
    """
    return (weights * features[:, None]).sum(2).log_softmax(1)


def placed(features: Tensor, nearness: Tensor) -> Tensor:
    """Return features (N, 2F): as they are, then times how near the text's beginning is.

    Args:
        features: (N, F) x.
        nearness: (N,) or (1,) from 1 at the beginning down to 0.
    """
    return torch.cat([features, features * nearness[:, None]], 1)


@dataclass(frozen=True, slots=True, eq=False)
class LearnedGate:
    """The weights G of a gate whose shares are ``w = softmax(G x)``, learned online by the loss of
    their mixture.

    The features z of a query come twice, the second time faded: ``x = (z, k z)`` with ``k = exp(-n
    / 32)`` after n tokens of a text. At a text's beginning the base knows little of it and states
    are unlike those further on, so parts differ in how far to trust them there. The second half of
    G begins anew with every text, and so learns fast. In the first text of all k is 0, since no
    memory is there yet.

    A token y is part c's with probability ``r_c = w_c p_c(y) / sum_j w_j p_j(y)``, and the gradient
    of the loss in the logits of the shares is ``w - r``. G stays fixed within an interval. After it
    comes a step of AdaGrad (Duchi, Hazan and Singer 2011) with its own weight for every entry::

        S <- S + sum_t (r_t - w_t)^2 (x_t^2)^T
        G <- G + rate sum_t (r_t - w_t) x_t^T / sqrt(1 + S)

    The mixture is never much worse than one of its parts, the ``anchor``. Gate and anchor are mixed
    by the likelihood that each gave the tokens so far: the log-odds of the gate grow by the
    anchor's loss minus the gate's, within ``SURE``. Another text begins with the odds that the
    beginnings of earlier texts had: see :attr:`begun`.

    Args:
        weights: (C, 2F) float64 G.
        rate: rate of a step.
        anchor: number of the part; None for no anchor.
        squares: (C, 2F) float64 S; None for zeros.
        odds: log-odds of the gate against the anchor, nats.
        place: tokens since the beginning of the text; ``UNBEGUN`` and more in the first one.
        gain: how much the gate gained over the anchor on the first of them, nats.
        helped: number of texts at whose beginning the gate did better, each by its probability.
        harmed: number of those where the anchor did.
        shipped: (C, 2F) float64 G before the first token; None for the weights given.
    """

    weights: Tensor
    rate: float
    anchor: int | None = None
    squares: Tensor | None = None
    odds: float = TRUST
    place: float = UNBEGUN
    gain: float = 0.0
    helped: float = 0.0
    harmed: float = 0.0
    shipped: Tensor | None = None

    @property
    def first(self) -> Tensor:
        """(C, 2F) G before the first token."""
        return self.weights if self.shipped is None else self.shipped

    @property
    def nearness(self) -> float:
        """How near the text's beginning is, from 1 down to 0."""
        return exp(-self.place / FADING)

    def placed(self, features: Tensor) -> Tensor:
        """Return features (N, 2F) of queries with features (N, F) at this place of the text."""
        return placed(features, features.new_tensor([self.nearness]))

    def log_mixture_weights(self, features: Tensor) -> Tensor:
        """Return log-shares (N, C) of queries with features (N, F); see :func:`anchored`."""
        mixture_weights = log_softmax_weights(
            self.placed(features), self.weights.expand(len(features), -1, -1)
        )
        return anchored(mixture_weights, self.weights.new_tensor([self.odds]), self.anchor)

    def after(self, evidence: Sequence[Sequence[float]]) -> LearnedGate:
        """Return the gate after more tokens, given their losses under the parts, nats, and their
        features, (n, C + F).

        It learns nothing from a token that is nan, nor from one to which every part gave
        probability 0.
        """
        rows = self.weights.new_tensor(evidence)
        losses, features = rows[:, : len(self.weights)], rows[:, len(self.weights) :]
        usable = losses.isfinite().any(1) & features.isfinite().all(1)
        place = self.place + len(rows)
        if not usable.any():
            return replace(self, place=place)
        losses, features = losses[usable], self.placed(features[usable])
        mixture_weights = log_softmax_weights(
            features, self.weights.expand(len(losses), -1, -1)
        )  # (n, C)
        owned = (mixture_weights - losses).softmax(1)
        change = owned - mixture_weights.exp()  # (n, C)
        # (C, 2F)
        squares = (change**2).t() @ features**2 + (0 if self.squares is None else self.squares)
        weights = self.weights + self.rate * (change.t() @ features) / (1 + squares).sqrt()
        odds, begun = self.odds, self.gain
        if self.anchor is not None:
            gain = float((losses[:, self.anchor] - gated_losses(losses, mixture_weights)).sum())
            odds = max(-SURE, min(SURE, odds + gain))
            if self.place < BEGINNING:
                begun += gain
        return replace(
            self,
            weights=weights,
            squares=squares,
            odds=odds,
            place=place,
            gain=begun,
            shipped=self.first,
        )

    @property
    def at_text_start(self) -> LearnedGate:
        """Return the gate for the beginning of another text.

        Its odds are those of earlier beginnings: a text counts as helped by the probability that
        the gate rather than the anchor gave its first tokens, and eight more texts count for each
        side. The first text of all counts for neither.
        """
        helped, harmed = self.helped, self.harmed
        if 0 < self.place < UNBEGUN:
            share = 1 / (1 + exp(-max(-SURE, min(SURE, self.gain))))
            helped, harmed = helped + share, harmed + 1 - share
        half, squares = self.weights.shape[1] // 2, self.squares
        weights = torch.cat([self.weights[:, :half], self.first[:, half:]], 1)
        if squares is not None:
            squares = torch.cat([squares[:, :half], torch.zeros_like(squares[:, half:])], 1)
        return replace(
            self,
            weights=weights,
            squares=squares,
            odds=log((DOUBT + helped) / (DOUBT + harmed)),
            place=0.0,
            gain=0.0,
            helped=helped,
            harmed=harmed,
            shipped=self.first,
        )

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Weights, squares and the other numbers as one list."""
        squares = torch.zeros_like(self.weights) if self.squares is None else self.squares
        rest = self.odds, self.place, self.gain, self.helped, self.harmed
        return *self.weights.flatten().tolist(), *squares.flatten().tolist(), *rest

    def from_floats(self, numbers: Sequence[float]) -> LearnedGate:
        """Return the gate that :attr:`as_floats` came from."""
        size = self.weights.numel()
        weights, squares = (
            self.weights.new_tensor(numbers[begin : begin + size]).view_as(self.weights)
            for begin in (0, size)
        )
        odds, place, gain, helped, harmed = numbers[2 * size :]
        return replace(
            self,
            weights=weights,
            squares=squares,
            odds=odds,
            place=place,
            gain=gain,
            helped=helped,
            harmed=harmed,
            shipped=self.first,
        )


def anchored(log_mixture_weights: Tensor, odds: Tensor, anchor: int | None) -> Tensor:
    """Return the log-shares of the parts in the mixture of gate and anchor.

    Args:
        log_mixture_weights: (N, C) log-shares of the gate.
        odds: (N,) or (1,) log-odds of the gate against the anchor, nats.
        anchor: number of the part; None changes nothing.
    """
    if anchor is None:
        return log_mixture_weights
    mixture_weights = log_mixture_weights + torch.nn.functional.logsigmoid(odds)[:, None]
    whole = torch.nn.functional.logsigmoid(-odds).expand(len(mixture_weights))
    mixture_weights[:, anchor] = torch.logaddexp(mixture_weights[:, anchor], whole)
    return mixture_weights
