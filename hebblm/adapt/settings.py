"""Hyper-parameters of every method as frozen, validated dataclasses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hebblm.adapt import checks
from hebblm.adapt.checks import Rate, Scale, Share, Sharpness
from hebblm.errors import UserError


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Continuous cache (Grave, Joulin and Usunier 2017).

    Args:
        window: number of most recent tokens it remembers; 500 (PTB) and 3785 (WikiText-2) were published for AWD-LSTM.
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 2 and 0.6, their shares learned as
            gamma is; absolute ones of 1.0 (PTB) and 0.662 (WikiText-2) were
            published.
        gamma: share of the cache, learned online or a number; published 0.1 (PTB) and 0.1279 (WikiText-2).
        scale: h_k . h relative to its standard deviation over what a query sees, or absolute as published.
    """

    section: ClassVar[str] = "cache"

    window: int = 500
    theta: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.at_least(f"{self.section}.window", self.window, 1)
        checks.at_least_or_online(f"{self.section}.theta", self.theta, 0)
        checks.share_or_online(f"{self.section}.gamma", self.gamma)


@dataclass(frozen=True, slots=True)
class KnnConfig:
    """kNN-LM (Khandelwal et al. 2020).

    Args:
        temperature: T of the weights exp(-d^2 / T), a number or online: 0.6 and 2, their shares learned as gamma is.
        gamma: share of the neighbours: learned online from the tokens already scored, or a number.
        scale: d^2 relative to its standard deviation over the neighbours, or absolute as published.
    """

    temperature: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.above_zero_or_online("knn.temperature", self.temperature)
        checks.share_or_online("knn.gamma", self.gamma)


@dataclass(frozen=True, slots=True)
class MixtureConfig:
    """Mixture over the retrieved neighbours.

    Args:
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 2 and 0.6, their shares learned as
            gamma is.
        gamma: share of the neighbours: learned online from the tokens already scored, or a number.
        form: linear (both sides normalised) or logit-sum (as the paper prints it; absolute, gamma a number).
        scale: h_k . h relative to its standard deviation over the neighbours, or absolute as printed.
    """

    theta: Sharpness = "online"
    gamma: Share = "online"
    form: Literal["linear", "logit-sum"] = "linear"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.at_least_or_online("mixture.theta", self.theta, 0)
        checks.share_or_online("mixture.gamma", self.gamma)
        checks.logits_or_linear(self.form, self.scale, theta=self.theta, gamma=self.gamma)


@dataclass(frozen=True, slots=True)
class MixtureGatedConfig:
    """Mixture whose share depends on the query; the coefficients are learned by hebblm-tune.

    Args:
        theta: sharpness of the weights exp(theta h_k . h).
        bias: constant term of the gate.
        distance: coefficient of the log squared distance of the nearest entry.
        entropy: coefficient of the entropy of the neighbours' labels, in nats.
        peak: coefficient of the base's largest log-probability, in nats.
        scale: products relative to their standard deviation and distance to its mean over the neighbours, or absolute.
    """

    theta: float = 1.0
    bias: float = -1.5
    distance: float = 0.0
    entropy: float = 0.0
    peak: float = 0.0
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.at_least("mixture_gated.theta", self.theta, 0)
        for name in ("bias", "distance", "entropy", "peak"):
            value = getattr(self, name)
            if not math.isfinite(value):
                raise UserError(f"mixture_gated.{name} = {value} must be a finite number")


@dataclass(frozen=True, slots=True)
class MixtureCacheConfig(CacheConfig):
    """Continuous cache on top of Mixture, whose share is the rest; the window keeps states as they were when read."""

    section: ClassVar[str] = "mixture_cache"


@dataclass(frozen=True, slots=True)
class MbpaConfig:
    """Memory-based parameter adaptation (Sprechmann et al. 2018).

    Args:
        lr: learning rate: relative, in units of 1 over the largest eigenvalue of the query's curvature, or lambda.
        rate: relative to the curvature of each query's own problem (cannot climb for lr <= 4), absolute, or guarded:
            absolute, and a query that diverges is run again at a stable rate, and counted.
        steps: gradient steps a query.
        optimizer: sgd (plain descent) or rmsprop (fresh state a query; exact and slow).
        method: fast (a few hundred classes followed) or exact.
        eps: constant in the closeness 1 / (eps + squared distance).
        scale: of distances and eps: relative to the mean squared distance of a query's neighbours, or absolute.
        closeness: raw as printed, or scaled to sum 1 or max 1; a relative rate makes all three the same.
        pull: pull back to the base head: a step takes lr * pull of the change back.
    """

    lr: float = 8.0
    rate: Rate = "relative"
    steps: int = 15
    optimizer: Literal["sgd", "rmsprop"] = "sgd"
    method: Literal["fast", "exact"] = "fast"
    eps: float = 3e-3
    scale: Scale = "relative"
    closeness: Literal["raw", "sum", "max"] = "raw"
    pull: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least("mbpa.lr", self.lr, 0)
        checks.at_least("mbpa.steps", self.steps, 0)
        checks.above_zero("mbpa.eps", self.eps)
        checks.at_least("mbpa.pull", self.pull, 0)


@dataclass(frozen=True, slots=True)
class MbpaAbsoluteConfig:
    """MbPA at the paper's absolute rate, whatever comes of it.

    Args:
        lr: learning rate lambda.
        steps: gradient steps a query.
        eps: constant in the closeness 1 / (eps + squared distance).
    """

    section: ClassVar[str] = "mbpa_absolute"
    rate: ClassVar[Rate] = "absolute"

    lr: float = 1.0
    steps: int = 5
    eps: float = 1e-3

    def __post_init__(self) -> None:
        checks.at_least(f"{self.section}.lr", self.lr, 0)
        checks.at_least(f"{self.section}.steps", self.steps, 0)
        checks.above_zero(f"{self.section}.eps", self.eps)

    def over(self, mbpa: MbpaConfig) -> MbpaConfig:
        """Return the settings of MbPA at this rate; all that is not set here is that of ``mbpa``."""
        return replace(
            mbpa,
            lr=self.lr,
            steps=self.steps,
            eps=self.eps,
            rate=self.rate,
            scale="absolute",
            closeness="raw",
        )


@dataclass(frozen=True, slots=True)
class MbpaGuardedConfig(MbpaAbsoluteConfig):
    """The same; a query that diverges is run again at a stable rate."""

    section: ClassVar[str] = "mbpa_guarded"
    rate: ClassVar[Rate] = "guarded"

    lr: float = 5.0


@dataclass(frozen=True, slots=True)
class HebbConfig:
    """Memory-based Hebbian parameter adaptation (Mi, Lin and Faltings 2021); its MbPA term is that of ``mbpa``.

    Args:
        beta: decay of the Hebbian term's weight with the count of a class.
        eta: strength of the Hebbian term; relative: nats that a label at closeness 1 gains.
        gate: gated keeps the whole MbPA change of a class without a Hebbian term; literal shrinks it by 1 - E.
        classes: which labels make up N^new; new (not in the training vocabulary), all, or auto: new where there are new
            words, all otherwise.
        constant: the constant E of variant v3.
        counts: examples that n_i counts; observed (training and stream) or memory (entries only).
        closeness: of the Hebbian term's entries: raw as printed, or scaled to sum 1 or max 1, which bounds the term.
        scale: closeness relative to the mean squared distance of the neighbours and the term to its value at the query
            itself, or both absolute as printed.
    """

    beta: float = 0.99
    eta: float = 8.0
    gate: Literal["gated", "literal"] = "gated"
    classes: Literal["auto", "new", "all"] = "auto"
    constant: float = 0.5
    counts: Literal["observed", "memory"] = "observed"
    closeness: Literal["raw", "sum", "max"] = "max"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.decay("hebb.beta", self.beta)
        checks.at_least("hebb.eta", self.eta, 0)
        checks.share("hebb.constant", self.constant)


@dataclass(frozen=True, slots=True)
class MixtureMbpaConfig:
    """Mixture+MbPA.

    Args:
        weight: share w of Mixture, learned online or a number; the rest is MbPA's.
    """

    weight: Share = "online"

    def __post_init__(self) -> None:
        checks.share_or_online("mixture_mbpa.weight", self.weight)


@dataclass(frozen=True, slots=True)
class MixtureHebbConfig:
    """Mixture+Hebb.

    Args:
        weight: share w of Mixture, learned online or a number; the rest is Hebb's.
    """

    weight: Share = "online"

    def __post_init__(self) -> None:
        checks.share_or_online("mixture_hebb.weight", self.weight)


@dataclass(frozen=True, slots=True)
class DynamicMixtureConfig:
    """Mixture over the moving states of dynamic evaluation.

    Args:
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 2 and 0.6, their shares learned as
            gamma is.
        gamma: share of the neighbours: learned online from the tokens already scored, or a number.
        scale: of h_k . h, as for mixture.
    """

    theta: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.at_least_or_online("dynamic_mixture.theta", self.theta, 0)
        checks.share_or_online("dynamic_mixture.gamma", self.gamma)


@dataclass(frozen=True, slots=True)
class DynamicMixtureHebbConfig:
    """Mixture+Hebb over the moving states of dynamic evaluation.

    Args:
        weight: share w of Mixture, learned online or a number; the rest is Hebb's.
    """

    weight: Share = "online"

    def __post_init__(self) -> None:
        checks.share_or_online("dynamic_mixture_hebb.weight", self.weight)


@dataclass(frozen=True, slots=True)
class DynamicMixtureCacheConfig(MixtureCacheConfig):
    """The same, both over the moving states of dynamic evaluation."""

    section: ClassVar[str] = "dynamic_mixture_cache"
