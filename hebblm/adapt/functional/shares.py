"""Shares of two distributions in their mixture, linear or log-linear: given, or learned from what was scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from hebblm.adapt import checks

START = 0.3  # the share before anything was scored
PRIOR = 10.0  # tokens that it counts for
KEPT = 0.996  # what a token counts after the next one: the last 250 decide
WEIGHT_START = 0.8  # the log-linear weight before anything was scored
WEIGHT_PRIOR = 10.0  # nats of curvature that it counts for
WEIGHT_KEPT = 0.998  # the last 500 tokens decide


def is_zero(weight: float | Tensor) -> bool:
    """Say whether a share is the number 0; shares (N,) never are, all together.

    Raises:
        UserError: a number outside [0, 1].
    """
    if isinstance(weight, Tensor):
        return False
    checks.share("weight", weight)
    return weight == 0


def log_shares(weight: float | Tensor, like: Tensor) -> tuple[float | Tensor, float | Tensor]:
    """Return ``log w`` and ``log(1 - w)`` in a shape that goes with ``like`` (N, ...) where w is (N,)."""
    if isinstance(weight, Tensor):
        weight = weight.to(like.dtype).view(-1, *[1] * (like.dim() - 1))
        return weight.log(), torch.log1p(-weight)
    return (
        math.log(weight) if weight > 0 else -math.inf,
        math.log1p(-weight) if weight < 1 else -math.inf,
    )


def mixed(first: Tensor, second: Tensor, weight: float | Tensor) -> Tensor:
    """Return ``log(w exp(first) + (1 - w) exp(second))``; the ends return one of them unchanged.

    Args:
        first: (N,) or (N, V), nats.
        second: of the same shape.
        weight: w within [0, 1], or (N,).

    Raises:
        UserError: a number outside [0, 1].
    """
    if is_zero(weight):
        return second
    if not isinstance(weight, Tensor) and weight == 1:
        return first
    own, rest = log_shares(weight, first)
    return torch.logaddexp(first + own, second + rest)


class Learned(Protocol):
    """Statistics of shares over the tokens already scored."""

    def after(self, evidence: Sequence[Any]) -> Self:
        """Return what is known once more tokens were scored, all of them with the shares as they are.

        Args:
            evidence: what each token says, nan where it says nothing.
        """

    @property
    def numbers(self) -> tuple[float, ...]:
        """All that is known, to be kept."""

    def recalled(self, numbers: Sequence[float]) -> Self:
        """Return what was known when :attr:`numbers` were kept."""


@dataclass(frozen=True, slots=True)
class LearnedShare:
    """The share w of one of two distributions p and q, by what they gave to the tokens already scored.

    Expectation maximisation, online and with forgetting (Cappe and Moulines 2009): a token y is p's with probability
    ``r = w p(y) / (w p(y) + (1 - w) q(y))``, w as it was when the token was scored, and of tokens 1 .. T::

        w = (10 * 0.3 + sum_t 0.996^(T - t) r_t) / (10 + sum_t 0.996^(T - t))

    Args:
        owned: sum of the discounted r.
        tokens: sum of the discounts.
    """

    owned: float = 0.0
    tokens: float = 0.0

    @property
    def value(self) -> float:
        """The share, strictly within 0 and 1."""
        return (PRIOR * START + self.owned) / (PRIOR + self.tokens)

    def after(self, evidence: Iterable[float]) -> LearnedShare:
        """Return the share once more tokens were scored, all of them with the share as it is.

        Args:
            evidence: of each token, ``log p(y) - log q(y)`` in nats; infinite where one gave it nothing, nan where
                neither did.
        """
        odds = math.log(self.value) - math.log1p(-self.value)
        owned, tokens = self.owned, self.tokens
        for nats in evidence:
            if not math.isnan(nats):
                owned = KEPT * owned + 1 / (1 + math.exp(min(700.0, -odds - nats)))
                tokens = KEPT * tokens + 1
        return LearnedShare(owned, tokens)

    @property
    def numbers(self) -> tuple[float, float]:
        """Evidence and tokens so far, as :meth:`recalled` takes them over."""
        return self.owned, self.tokens

    def recalled(self, numbers: Sequence[float]) -> LearnedShare:
        """Return the share that was known when :attr:`numbers` were kept."""
        return LearnedShare(*numbers)


@dataclass(frozen=True, slots=True)
class LearnedWeight:
    """The weight s of a change d of logits f, by what it would have cost the tokens already scored.

    ``softmax(f + s d)`` is the log-linear interpolation of the distributions without and with the change (Klakow 1998).
    Its loss is convex in s. Of a token y it is known at three places, ``L(0), L(1/2), L(1)``; the parabola through them
    has the curvature ``2 a`` with ``a = 2 (L(0) - 2 L(1/2) + L(1))``, and is lowest where ``2 a s = a + L(0) - L(1)``.
    Of tokens 1 .. T, the later ones counting more::

        s = (10 * 0.8 + sum_t 0.998^(T - t) (a_t + L_t(0) - L_t(1)) / 2) / (10 + sum_t 0.998^(T - t) a_t)

    within 0 and 1.

    Args:
        lowest: sum of the discounted ``(a + L(0) - L(1)) / 2``, nats.
        curvature: sum of the discounted a, nats.
    """

    lowest: float = 0.0
    curvature: float = 0.0

    @property
    def value(self) -> float:
        """The weight, within 0 and 1."""
        found = (WEIGHT_PRIOR * WEIGHT_START + self.lowest) / (WEIGHT_PRIOR + self.curvature)
        return min(1.0, max(0.0, found))

    def after(self, evidence: Iterable[Sequence[float]]) -> LearnedWeight:
        """Return the weight once more tokens were scored.

        Args:
            evidence: of each token, ``L(0), L(1/2), L(1)`` in nats; one that is not finite says nothing.
        """
        lowest, curvature = self.lowest, self.curvature
        for none, half, whole in evidence:
            bend = max(0.0, 2 * (none - 2 * half + whole))  # rounding may turn a line
            if math.isfinite(bend + none - whole):
                lowest = WEIGHT_KEPT * lowest + (bend + none - whole) / 2
                curvature = WEIGHT_KEPT * curvature + bend
        return LearnedWeight(lowest, curvature)

    @property
    def numbers(self) -> tuple[float, float]:
        """All that is known, as :meth:`recalled` takes it over."""
        return self.lowest, self.curvature

    def recalled(self, numbers: Sequence[float]) -> LearnedWeight:
        """Return the weight that was known when :attr:`numbers` were kept."""
        return LearnedWeight(*numbers)
