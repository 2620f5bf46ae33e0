"""The methods: each turns the shared quantities of a mini-batch into log-probabilities, or a label's loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.checks import ONLINE, Share
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.functional.losses import (
    interpolated_losses,
    logit_sum_losses,
    mixture_losses,
)
from hebblm.adapt.needs import Needs
from hebblm.adapt.settings import CacheConfig, KnnConfig, MbpaConfig, MixtureConfig

PAIR = (0.6, 2.0)  # of sharpness, or temperature, where it is online
MEASURED = 1000  # one query in so many is adapted by the exact form as well


class Rule(Protocol):
    """A pure map from a mini-batch to log-probabilities."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V) log-probabilities in nats."""

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,): what gathering from :meth:`log_probs` gives, for less."""

    @property
    def needs(self) -> Needs:
        """What has to be at hand, or is counted, because of it."""


@dataclass(frozen=True, slots=True)
class Unadapted:
    """The base language model as it is."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return the base's log-probabilities (N, V), nats."""
        return batch.log_probs

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the base's loss (N,), nats."""
        return batch.base_losses(targets)

    @property
    def needs(self) -> Needs:
        """Nothing."""
        return Needs()


class Blend(Protocol):
    """A rule that mixes two distributions, with a share that may be learned."""

    @property
    def share(self) -> Share:
        """Share of the first: a number, or learned online."""

    def parts(self, batch: EvalBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of ``targets`` (N,) under the first and the second, nats."""


class Remembering:
    """``gamma q + (1 - gamma) p``: labels of remembered entries, weighted by a score, beside another rule's p."""

    __slots__ = ()
    over: Rule

    @property
    def share(self) -> Share:
        """gamma."""
        raise NotImplementedError

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights (N, K), labels (N, K) or (1, K), and which entries each query sees (N, K)."""
        raise NotImplementedError

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.memory_mixture`."""

        def compute() -> Tensor:
            base = self.over.log_probs(batch)
            return F.memory_mixture(base, *self.entries(batch), weight_of(self, batch))

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""

        def compute() -> Tensor:
            weight = weight_of(self, batch)
            if isinstance(weight, Tensor):
                return interpolated_losses(*batch.parts(self, targets), weight)
            return mixture_losses(self.over.score(batch, targets), *self.entries(batch), weight, targets)

        return batch.scored(self, targets, compute)

    def parts(self, batch: EvalBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of memory and other rule, equal for a query that sees no entry; nats."""
        base = self.over.score(batch, targets)
        return mixture_losses(base, *self.entries(batch), 1.0, targets), base


def weight_of(blend: Blend, batch: EvalBatch) -> float | Tensor:
    """Return the share of a blend's first part: the number it is, or (N,) what was learned before each query."""
    return batch.learned_share(blend) if isinstance(blend.share, str) else blend.share


def learned(blend: Blend) -> tuple[Blend, ...]:
    """Return the blend where its share is learned, else nothing."""
    return (blend,) if isinstance(blend.share, str) else ()


@dataclass(frozen=True, slots=True)
class Cache(Remembering):
    """Continuous cache: every pair in a window of the recent past (Grave et al. 2017).

    Args:
        config: window, sharpness, share.
        over: what the rest of the probability is predicted by.
    """

    config: CacheConfig
    over: Rule = field(default_factory=Unadapted)

    @property
    def share(self) -> Share:
        """Share of the window."""
        return self.config.gamma

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, labels and visibility of the window's pairs."""
        past, config = batch.window(self.config.window), self.config
        scores = F.log_weights(past.products, past.seen, sharpness=float(config.theta), scale=config.scale)
        return scores, past.labels[None], past.seen

    @property
    def needs(self) -> Needs:
        """The recent past, and what the cache lies over."""
        return self.over.needs | Needs(window=self.config.window, shares=learned(self))


@dataclass(frozen=True, slots=True)
class KnnLM(Remembering):
    """kNN-LM: neighbours weighted by distance (Khandelwal et al. 2020)."""

    config: KnnConfig
    over: Rule = field(default_factory=Unadapted)

    @property
    def share(self) -> Share:
        """Share of the neighbours."""
        return self.config.gamma

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, labels and presence of the neighbours."""
        near, config = batch.neighbors, self.config
        scores = -near.distances.to(batch.hidden.dtype)
        scores = F.log_weights(scores, near.mask, sharpness=1 / float(config.temperature), scale=config.scale)
        return scores, near.values, near.mask

    @property
    def needs(self) -> Needs:
        """Neighbours, and what the rest is predicted by."""
        return self.over.needs | Needs(retrieval=True, shares=learned(self))


@dataclass(frozen=True, slots=True)
class Mixture(Remembering):
    """Mixture: neighbours weighted by inner product (paper, section 4.2)."""

    config: MixtureConfig
    over: Rule = field(default_factory=Unadapted)

    @property
    def share(self) -> Share:
        """Share of the neighbours."""
        return self.config.gamma

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, labels and presence of the neighbours."""
        near, config = batch.neighbors, self.config
        scores = F.log_weights(batch.products, near.mask, sharpness=float(config.theta), scale=config.scale)
        return scores, near.values, near.mask

    @property
    def needs(self) -> Needs:
        """Neighbours, and what the rest is predicted by."""
        return self.over.needs | Needs(retrieval=True, shares=learned(self))


@dataclass(frozen=True, slots=True)
class LogitSum:
    """Mixture as the paper prints it: the neighbours' weights are added to ``exp(f)`` before both are normalised."""

    config: MixtureConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.mixture_log_probs`."""
        config = self.config
        return batch.shared(
            self,
            lambda: F.mixture_from(
                batch.logits,
                batch.products,
                batch.neighbors,
                theta=float(config.theta),
                gamma=self._gamma,
                form="logit-sum",
                scale=config.scale,
            ),
        )

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        config, near = self.config, batch.neighbors

        def compute() -> Tensor:
            scores = F.log_weights(
                batch.products, near.mask, sharpness=float(config.theta), scale=config.scale
            )
            taken = batch.logits.gather(1, targets[:, None]).squeeze(1)
            return logit_sum_losses(
                taken, batch.log_normalizers, scores, near.values, near.mask, self._gamma, targets
            )

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Neighbours."""
        return Needs(retrieval=True)

    @property
    def _gamma(self) -> float:
        """The share, which the settings allow as a number alone in this form."""
        return float(self.config.gamma)


def mbpa_result(batch: EvalBatch, config: MbpaConfig) -> F.MbpaResult:
    """Return the change of the logits by MbPA, computed once a mini-batch and configuration."""
    return batch.shared(config, lambda: _mbpa(batch, config, slice(None)))


def _mbpa(batch: EvalBatch, config: MbpaConfig, rows: slice | list[int]) -> F.MbpaResult:
    """Return the change of the logits by MbPA for some queries of a mini-batch."""
    return F.mbpa_delta(
        batch.hidden[rows],
        batch.neighbors.rows(rows),
        batch.head,
        batch.logits[rows],
        lr=config.lr,
        steps=config.steps,
        eps=config.eps,
        rate=config.rate,
        method=config.method,
        optimizer=config.optimizer,
        pull=config.pull,
        closeness_normalization=config.closeness,
        scale=config.scale,
        products=batch.products[rows],
    )


def fast_errors(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Return what the fast form of MbPA costs, measured by the exact one on one query in a thousand of the stream.

    Returns:
        (M,) nats a token for the M queries measured in this mini-batch: the mean of ``|log p - log p_exact|`` over the
        exact distribution. Which queries are measured depends on their place in the stream alone.
    """

    def compute() -> Tensor:
        start = int(batch.context.observed.sum())
        rows = [row for row in range(len(batch.hidden)) if _measured(start + row)]
        if config.method == "exact" or not rows:
            return batch.hidden.new_zeros(0)
        exact = (batch.logits[rows] + _mbpa(batch, replace(config, method="exact"), rows).delta).log_softmax(
            1
        )
        fast = (batch.logits[rows] + mbpa_result(batch, config).delta[rows]).log_softmax(1)
        return (exact.exp() * (fast - exact).abs()).sum(1)

    return batch.shared(("fast errors", config), compute)


def _measured(position: int) -> bool:
    """Say whether the fast form's error is measured at a place of the stream: at a random one of every thousand."""
    block, place = divmod(position, MEASURED)
    return place == Random(block).randrange(MEASURED)


def adapted_logits(batch: EvalBatch, config: MbpaConfig) -> tuple[Tensor, Tensor]:
    """Return the logits after MbPA (N, V) and their logsumexp (N,), computed once a mini-batch and configuration."""

    def compute() -> tuple[Tensor, Tensor]:
        logits = batch.logits + mbpa_result(batch, config).delta
        return logits, logits.logsumexp(1)

    return batch.shared(("adapted", config), compute)


@dataclass(frozen=True, slots=True)
class Mbpa:
    """MbPA: the head after gradient steps on the neighbours (Eq. 5)."""

    config: MbpaConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.mbpa_logits`."""
        return batch.shared(self, lambda: adapted_logits(batch, self.config)[0].log_softmax(1))

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        logits, normalizers = adapted_logits(batch, self.config)
        return normalizers - logits.gather(1, targets[:, None]).squeeze(1)

    @property
    def needs(self) -> Needs:
        """Neighbours, and the gradient steps on them."""
        return Needs(retrieval=True, descents=(self.config,))


@dataclass(frozen=True, slots=True)
class Interpolated:
    """``w P_first + (1 - w) P_second``, e.g. Mixture+Hebb."""

    first: Rule
    second: Rule
    share: Share

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""
        weight = weight_of(self, batch)
        return F.interpolate_log_probs(self.first.log_probs(batch), self.second.log_probs(batch), weight)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        return interpolated_losses(*batch.parts(self, targets), weight_of(self, batch))

    def parts(self, batch: EvalBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of both, nats."""
        return self.first.score(batch, targets), self.second.score(batch, targets)

    @property
    def needs(self) -> Needs:
        """What both parts need."""
        return self.first.needs | self.second.needs | Needs(shares=learned(self))


def remembering(
    kind: Callable[[Any, Rule], Remembering], config: CacheConfig | KnnConfig | MixtureConfig, over: Rule
) -> Rule:
    """Return the rule of some settings; where their sharpness is online, two memories of one sharpness each, mixed.

    Args:
        kind: the rule of settings whose sharpness is a number.
        config: the settings.
        over: what the rest of the probability is predicted by.
    """
    name = "temperature" if isinstance(config, KnnConfig) else "theta"
    if not isinstance(getattr(config, name), str):
        return kind(config, over)
    flat, sharp = (kind(replace(config, **{name: value, "gamma": 1.0}), over) for value in PAIR)
    return Interpolated(Interpolated(sharp, flat, ONLINE), over, config.gamma)


@dataclass(frozen=True, slots=True)
class Tempered:
    """``softmax(log P / T)``: another rule's distribution, flatter for T above 1 and sharper below."""

    rule: Rule
    temperature: float

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""
        return (self.rule.log_probs(batch) / self.temperature).log_softmax(1)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats; the normaliser takes every class."""
        return tempered_losses(self.rule.log_probs(batch), targets, self.temperature)

    @property
    def needs(self) -> Needs:
        """What the rule needs."""
        return self.rule.needs


def tempered_losses(log_probs: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return ``-log softmax(log P / T)`` (N,) of ``targets`` (N,), from (N, V) log-probabilities; nats."""
    scaled = log_probs / temperature
    return scaled.logsumexp(1) - scaled.gather(1, targets[:, None]).squeeze(1)
