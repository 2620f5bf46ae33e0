"""Shares of distributions in their mixture, linear or log-linear: given, or learned from what was scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from hebblm.adapt import checks

START = 0.3  # the share of all parts but the last, before anything was scored
PRIOR = 10.0  # tokens that it counts for
KEPT = 0.996  # what a token counts after the next one: the last 250 decide
WEIGHT_START = 1.0  # the log-linear weight before anything was scored
WEIGHT_PRIOR = 20.0  # nats of curvature that it counts for
MOST_WEIGHT = 1.5
WEIGHT_KEPT = 0.998  # the last 500 tokens decide


def mixed(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """``log(w exp(first) + (1 - w) exp(second))`` for w within [0, 1], whose ends return one of them unchanged."""
    checks.share("weight", weight)
    if weight in {0, 1}:
        return first if weight else second
    return torch.logaddexp(first + math.log(weight), second + math.log1p(-weight))


def log_mixture(parts: Iterable[Tensor], log_shares: Tensor) -> Tensor:
    """Return ``log sum_c w_c exp(f_c)``, a class and a query by itself, so that its bits do not depend on the others.

    Args:
        parts: C of (N, V) log-probabilities f_c in nats, or (N,) of one class a query.
        log_shares: (N, C) log w, or (1, C) for all queries.
    """
    weighted = (
        part + share.to(part.dtype).view(-1, *[1] * (part.dim() - 1))
        for part, share in zip(parts, log_shares.unbind(1), strict=True)
    )
    return reduce(torch.logaddexp, weighted)


@dataclass(frozen=True, slots=True)
class LearnedShares:
    """The shares w of some distributions in their mixture, by what they gave to the tokens already scored.

    Expectation maximisation, online and with forgetting (Cappe and Moulines 2009): a token y is part c's with
    probability ``r_c = w_c p_c(y) / sum_j w_j p_j(y)``, w as it was when the token was scored. Of tokens 1 .. T, for
    each of the C parts before the last::

        w_c = (10 * 0.3 / C + sum_t 0.996^(T - t) r_tc) / (10 + sum_t 0.996^(T - t))

    The last one has the rest. Where a ``total`` is given, that of the others is scaled to it.

    Args:
        owned: C sums of the discounted r.
        tokens: sum of the discounts.
        total: share of all but the last together; None where it is learned.
    """

    owned: tuple[float, ...]
    tokens: float = 0.0
    total: float | None = None

    @property
    def value(self) -> tuple[float, ...]:
        """The C + 1 shares, of sum 1."""
        prior = PRIOR * START / len(self.owned)
        found = [(prior + owned) / (PRIOR + self.tokens) for owned in self.owned]
        if self.total is not None:
            found = [share * self.total / sum(found) for share in found]
        return *found, 1 - (sum(found) if self.total is None else self.total)

    def after(self, evidence: Iterable[Sequence[float]]) -> LearnedShares:
        """Shares once more tokens were scored, all of them with the shares as they are, by their C + 1 losses in nats.

        A loss is +inf where a part gave the token nothing; a token that no part gave anything, or nan, says nothing.
        """
        logs = [math.log(share) if share else -math.inf for share in self.value]
        owned, tokens = self.owned, self.tokens
        for losses in evidence:
            joint = [log - loss for log, loss in zip(logs, losses, strict=True)]
            most = max(joint)
            if math.isfinite(most):
                given = [math.exp(log - most) for log in joint]
                total = sum(given)
                owned = tuple(KEPT * old + new / total for old, new in zip(owned, given, strict=False))
                tokens = KEPT * tokens + 1
        return replace(self, owned=owned, tokens=tokens)

    @property
    def as_floats(self) -> tuple[float, ...]:
        """Evidence and tokens so far."""
        return *self.owned, self.tokens

    def from_floats(self, numbers: Sequence[float]) -> LearnedShares:
        """Shares as they were when :attr:`as_floats` were saved."""
        return replace(self, owned=tuple(numbers[:-1]), tokens=numbers[-1])


@dataclass(frozen=True, slots=True)
class LearnedWeight:
    """The weight s of a change d of logits f, by what it would have cost the tokens already scored.

    ``softmax(f + s d)`` is the log-linear interpolation of the distributions without and with the change (Klakow 1998),
    and beyond s = 1 its extrapolation. Its loss is convex in s. Of a token y it is known at three places,
    ``L(1/2), L(1), L(3/2)``; the parabola through them has the curvature ``2 a`` with
    ``a = 2 (L(1/2) - 2 L(1) + L(3/2))``, and is lowest where ``2 a (s - 1) = L(1/2) - L(3/2)``. Of tokens 1 .. T, the
    later ones counting more::

        s = (20 + sum_t 0.998^(T - t) (a_t + (L_t(1/2) - L_t(3/2)) / 2)) / (20 + sum_t 0.998^(T - t) a_t)

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
        found = (WEIGHT_PRIOR * WEIGHT_START + self.lowest) / (WEIGHT_PRIOR + self.curvature)
        return min(MOST_WEIGHT, max(0.0, found))

    def after(self, evidence: Iterable[Sequence[float]]) -> LearnedWeight:
        """Weight once more tokens were scored, by ``L(1/2), L(1), L(3/2)`` of each in nats, finite or of no meaning."""
        lowest, curvature = self.lowest, self.curvature
        for less, whole, more in evidence:
            bend = max(0.0, 2 * (less - 2 * whole + more))  # rounding may turn a line
            if math.isfinite(bend + less - more):
                lowest = WEIGHT_KEPT * lowest + bend + (less - more) / 2
                curvature = WEIGHT_KEPT * curvature + bend
        return LearnedWeight(lowest, curvature)

    @property
    def as_floats(self) -> tuple[float, float]:
        """All that is known."""
        return self.lowest, self.curvature

    def from_floats(self, numbers: Sequence[float]) -> LearnedWeight:
        """Weight as it was when :attr:`as_floats` were saved."""
        return LearnedWeight(*numbers)
