"""The methods: each turns the shared quantities of a mini-batch into log-probabilities, or a label's loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.functional.losses import (
    interpolated_losses,
    logit_sum_losses,
    mixture_losses,
)
from hebblm.adapt.needs import Needs
from hebblm.adapt.settings import CacheConfig, KnnConfig, MbpaConfig, MixtureConfig
from hebblm.adapt.window import WindowView

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


@dataclass(frozen=True, slots=True)
class Cache:
    """Continuous cache: every pair in a window of the recent past (Grave et al. 2017).

    Args:
        config: window, sharpness, share.
        over: what the rest of the probability is predicted by.
    """

    config: CacheConfig
    over: Rule = field(default_factory=Unadapted)

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.cache_log_probs`."""
        past, scores = self._past(batch)
        base = self.over.log_probs(batch)
        return F.memory_mixture(base, scores, past.labels[None], past.seen, self.config.gamma)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        past, scores = self._past(batch)
        base = self.over.score(batch, targets)
        return mixture_losses(base, scores, past.labels[None], past.seen, self.config.gamma, targets)

    def _past(self, batch: EvalBatch) -> tuple[WindowView, Tensor]:
        """Return the window and the log-weights (N, W) of its entries."""
        past, config = batch.window(self.config.window), self.config
        return past, F.log_weights(past.products, past.seen, sharpness=config.theta, scale=config.scale)

    @property
    def needs(self) -> Needs:
        """The recent past, and what the cache lies over."""
        return self.over.needs | Needs(window=self.config.window)


@dataclass(frozen=True, slots=True)
class KnnLM:
    """kNN-LM: neighbours weighted by distance (Khandelwal et al. 2020)."""

    config: KnnConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.knn_log_probs`."""
        near = batch.neighbors
        scores = self._scores(batch)
        return F.memory_mixture(batch.log_probs, scores, near.values, near.mask, self.config.gamma)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        near, base = batch.neighbors, batch.base_losses(targets)
        scores = self._scores(batch)
        return mixture_losses(base, scores, near.values, near.mask, self.config.gamma, targets)

    def _scores(self, batch: EvalBatch) -> Tensor:
        """Return the log-weights (N, K) of the neighbours."""
        near, config = batch.neighbors, self.config
        scores = -near.distances.to(batch.hidden.dtype)
        return F.log_weights(scores, near.mask, sharpness=1 / config.temperature, scale=config.scale)

    @property
    def needs(self) -> Needs:
        """Neighbours."""
        return Needs(retrieval=True)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Mixture: neighbours weighted by inner product (paper, section 4.2)."""

    config: MixtureConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.mixture_log_probs`."""

        def compute() -> Tensor:
            config = self.config
            base = batch.log_probs if config.form == "linear" else batch.logits
            return F.mixture_from(
                base,
                batch.products,
                batch.neighbors,
                theta=config.theta,
                gamma=config.gamma,
                form=config.form,
                scale=config.scale,
            )

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        config, near = self.config, batch.neighbors

        def compute() -> Tensor:
            scores = F.log_weights(batch.products, near.mask, sharpness=config.theta, scale=config.scale)
            if config.form == "linear":
                base = batch.base_losses(targets)
                return mixture_losses(base, scores, near.values, near.mask, config.gamma, targets)
            taken = batch.logits.gather(1, targets[:, None]).squeeze(1)
            return logit_sum_losses(
                taken, batch.log_normalizers, scores, near.values, near.mask, config.gamma, targets
            )

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Neighbours."""
        return Needs(retrieval=True)


def mbpa_result(batch: EvalBatch, config: MbpaConfig) -> F.MbpaResult:
    """Return the change of the logits by MbPA, computed once a mini-batch and configuration."""
    batch.check_keys("MbPA")
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
    weight: float

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""
        return F.interpolate_log_probs(self.first.log_probs(batch), self.second.log_probs(batch), self.weight)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""
        first, second = self.first.score(batch, targets), self.second.score(batch, targets)
        return interpolated_losses(first, second, self.weight)

    @property
    def needs(self) -> Needs:
        """What both parts need."""
        return self.first.needs | self.second.needs


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
