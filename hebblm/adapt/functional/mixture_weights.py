"""Shares of distributions in their mixture, linear or log-linear: given, or learned from scored
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from hebblm.adapt import checks

START = 0.3  # the share of all parts but the last, before the first token
PRIOR = 10.0  # tokens that it counts for
KEPT = 0.996  # factor of a token's weight with each further token: the last 250 decide
WEIGHT_START = 1.0  # the log-linear weight before the first token
WEIGHT_PRIOR = 20.0  # nats of curvature that it counts for
MOST_WEIGHT = 1.5
WEIGHT_KEPT = 0.998  # the last 500 tokens decide


def mixed(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Return ``log(w exp(first) + (1 - w) exp(second))`` for w within [0, 1]; 0 and 1 return one
    side unchanged.
    """
    checks.share("weight", weight)
    if weight in {0, 1}:
        return first if weight else second
    return torch.logaddexp(first + math.log(weight), second + math.log1p(-weight))


def log_mixture(parts: Iterable[Tensor], log_mixture_weights: Tensor) -> Tensor:
    """Return ``log sum_c w_c exp(f_c)``; the bits of a class and query do not depend on the others.

    Args:
        parts: C tensors (N, V) of log-probabilities f_c in nats, or (N,) of one class per query.
        log_mixture_weights: (N, C) log w, or (1, C) for all queries.
    """
    weighted = (
        part + share.to(part.dtype).view(-1, *[1] * (part.dim() - 1))
        for part, share in zip(parts, log_mixture_weights.unbind(1), strict=True)
    )
    return reduce(torch.logaddexp, weighted)


@dataclass(frozen=True, slots=True)
class OnlineMixtureWeights:
    """The shares w of some distributions in their mixture, learned from their probabilities of the
    scored tokens.

    Expectation maximisation, online and with forgetting (Cappe and Moulines 2009): a token y is
    part c's with probability ``r_c = w_c p_c(y) / sum_j w_j p_j(y)``, with the w of the token's
    scoring. After tokens 1 .. T, for each of the C parts before the last::

        w_c = (10 * 0.3 / C + sum_t 0.996^(T - t) r_tc) / (10 + sum_t 0.996^(T - t))

    The last part gets the rest. With a ``total``, the sum of the others is scaled to it.

    Args:
        owned: C sums of the discounted r.
        tokens: sum of the discounts.
        total: sum of all shares but the last; None to learn it.
    """

    owned: tuple[float, ...]
    tokens: float = 0.0
    total: float | None = None

    @property
    def value(self) -> tuple[float, ...]:
        """The C + 1 shares, with sum 1."""
        prior = PRIOR * START / len(self.owned)
        weights = [(prior + owned) / (PRIOR + self.tokens) for owned in self.owned]
        if self.total is not None:
            weights = [share * self.total / sum(weights) for share in weights]
        return *weights, 1 - (sum(weights) if self.total is None else self.total)

    def after(self, evidence: Iterable[Sequence[float]]) -> OnlineMixtureWeights:
        """Return the shares after more tokens, all scored with the present shares, given their C +
        1 losses in nats.

        A loss is +inf if a part gave the token probability 0. Tokens with +inf for every part, or
        nan, are ignored.
        """
        logs = [math.log(share) if share else -math.inf for share in self.value]
        owned, tokens = self.owned, self.tokens
        for losses in evidence:
            joint = [log - loss for log, loss in zip(logs, losses, strict=True)]
            most = max(joint)
            if math.isfinite(most):
                given = [math.exp(log - most) for log in joint]
                total = sum(given)
                owned = tuple(
                    KEPT * old + new / total for old, new in zip(owned, given, strict=False)
                )
                tokens = KEPT * tokens + 1
        return replace(self, owned=owned, tokens=tokens)

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Evidence and tokens so far."""
        return *self.owned, self.tokens

    def from_floats(self, numbers: Sequence[float]) -> OnlineMixtureWeights:
        """Return the shares that :attr:`as_floats` came from."""
        return replace(self, owned=tuple(numbers[:-1]), tokens=numbers[-1])


@dataclass(frozen=True, slots=True)
class LearnedWeight:
    """The weight s of a change d of logits f, learned from the losses of the scored tokens.

    ``softmax(f + s d)`` is the log-linear interpolation of the distributions without and with the
    change (Klakow 1998), and beyond s = 1 its extrapolation. Its loss is convex in s. For a token y
    it is known at three places, ``L(1/2), L(1), L(3/2)``; the parabola through them has the
    curvature ``2 a`` with ``a = 2 (L(1/2) - 2 L(1) + L(3/2))``, and its minimum at ``2 a (s - 1) =
    L(1/2) - L(3/2)``. After tokens 1 .. T, later ones counting more::

        s = (20 + sum_t 0.998^(T - t) (a_t + (L_t(1/2) - L_t(3/2)) / 2)) / (20 + sum_t 0.998^(T - t)
        a_t)

    within 0 and 3/2.

    Args:
        lowest: sum of the discounted ``a + (L(1/2) - L(3/2)) / 2``, nats.
        curvature: sum of the discounted a, nats.
    """

    lowest: float = 0.0
    curvature: float = 0.0

    @property
    def value(self) -> float:
        """The weight, within 0 and 3/2."""
        weights = (WEIGHT_PRIOR * WEIGHT_START + self.lowest) / (WEIGHT_PRIOR + self.curvature)
        return min(MOST_WEIGHT, max(0.0, weights))

    def after(self, evidence: Iterable[Sequence[float]]) -> LearnedWeight:
        """Return the weight after more tokens, given ``L(1/2), L(1), L(3/2)`` of each in nats;
        skips infinite ones.
        """
        lowest, curvature = self.lowest, self.curvature
        for less, whole, more in evidence:
            bend = max(0.0, 2 * (less - 2 * whole + more))  # rounding may turn a line
            if math.isfinite(bend + less - more):
                lowest = WEIGHT_KEPT * lowest + bend + (less - more) / 2
                curvature = WEIGHT_KEPT * curvature + bend
        return LearnedWeight(lowest, curvature)

    @property
    def as_floats(self) -> tuple[float, float]:
        """Both sums."""
        return self.lowest, self.curvature

    def from_floats(self, numbers: Sequence[float]) -> LearnedWeight:
        """Return the weight that :attr:`as_floats` came from."""
        return LearnedWeight(*numbers)
