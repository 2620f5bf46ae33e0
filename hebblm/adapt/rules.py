"""The methods: each turns the shared quantities of a mini-batch into log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.settings import CacheConfig, HebbConfig, KnnConfig, MbpaConfig, MixtureConfig
from hebblm.memory.counting import label_counts


class Rule(Protocol):
    """A pure map from a mini-batch to log-probabilities."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V) log-probabilities in nats."""

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Return (N,) bool, the queries whose adaptation diverged and was run at a stable rate."""


def _none(batch: EvalBatch) -> Tensor:
    """Return that no query was stabilised."""
    return torch.zeros(batch.hidden.shape[0], dtype=torch.bool, device=batch.hidden.device)


@dataclass(frozen=True, slots=True)
class Unadapted:
    """The base language model as it is."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return the base's log-probabilities (N, V), nats."""
        return batch.log_probs

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Nothing is adapted."""
        return _none(batch)


@dataclass(frozen=True, slots=True)
class Cache:
    """Continuous cache: every pair in a window of the recent past (Grave et al. 2017)."""

    config: CacheConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.cache_log_probs`."""
        context, window = batch.context, self.config.window
        keys, values = context.recent_keys[-window:], context.recent_values[-window:]
        products = batch.shared(("cache", window), lambda: batch.hidden @ keys.t())  # (N, W)
        seen = torch.ones_like(products, dtype=torch.bool)
        return F.memory_mixture(
            batch.log_probs, self.config.theta * products, values[None], seen, self.config.gamma
        )

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Nothing is adapted."""
        return _none(batch)


@dataclass(frozen=True, slots=True)
class KnnLM:
    """kNN-LM: neighbours weighted by distance (Khandelwal et al. 2020)."""

    config: KnnConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.knn_log_probs`."""
        near = batch.neighbors
        scores = -near.distances.to(batch.hidden.dtype) / self.config.temperature
        return F.memory_mixture(batch.log_probs, scores, near.values, near.mask, self.config.gamma)

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Nothing is adapted."""
        return _none(batch)


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
            )

        return batch.shared(self, compute)

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Nothing is adapted."""
        return _none(batch)


def mbpa_result(batch: EvalBatch, config: MbpaConfig) -> F.MbpaResult:
    """Return the change of the logits by MbPA, computed once a mini-batch and configuration."""

    def compute() -> F.MbpaResult:
        return F.mbpa_delta(
            batch.hidden,
            batch.neighbors,
            batch.head,
            batch.logits,
            lr=config.lr,
            steps=config.steps,
            eps=config.eps,
            method=config.method,
            optimizer=config.optimizer,
            pull=config.pull,
            closeness_normalization=config.closeness,
            guard=config.guard,
        )

    return batch.shared(config, compute)


@dataclass(frozen=True, slots=True)
class Mbpa:
    """MbPA: the head after gradient steps on the neighbours (Eq. 5)."""

    config: MbpaConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.mbpa_logits`."""
        return batch.shared(
            self, lambda: (batch.logits + mbpa_result(batch, self.config).delta).log_softmax(1)
        )

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Return the queries that MbPA stabilised."""
        return mbpa_result(batch, self.config).stabilized


def class_counts(batch: EvalBatch, config: HebbConfig) -> Tensor:
    """Return n_i (V,) int64: examples of each class seen in training and stream, or present in the memory."""
    context = batch.context
    if config.counts == "observed":
        return context.train_counts + context.observed
    classes = len(context.train_counts)
    return batch.shared(
        "memory counts", lambda: label_counts(context.memory, classes).to(context.observed.device)
    )


@dataclass(frozen=True, slots=True)
class Hebb:
    """Hebb: MbPA and the Hebbian term, weighted by how often a class was seen (Eq. 4 and 7).

    Args:
        config: of the Hebbian term.
        mbpa: of the gradient term.
        variant: ``v1`` the Hebbian term alone, ``v2`` over all of N, ``v3`` a constant weight;
            None for the method itself.
    """

    config: HebbConfig
    mbpa: MbpaConfig
    variant: str | None = None

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; see :func:`hebblm.adapt.functional.hebb_logits`."""
        return batch.shared(self, lambda: self._logits(batch).log_softmax(1))

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Return the queries that MbPA stabilised."""
        return _none(batch) if self.variant == "v1" else mbpa_result(batch, self.mbpa).stabilized

    def _logits(self, batch: EvalBatch) -> Tensor:
        config, context = self.config, batch.context
        classes = self._classes(context.new_classes)
        term = batch.shared(
            ("hebbian", classes is None, self.mbpa.eps, config.closeness),
            lambda: F.hebbian_term(
                batch.neighbors,
                batch.hidden,
                eps=self.mbpa.eps,
                hebbian_classes=classes,
                closeness_normalization=config.closeness,
                bias=batch.head.bias is not None,
            ),
        )
        counts = class_counts(batch, config)
        weights = batch.shared(
            ("weights", config.beta, config.counts), lambda: F.hebb_weights(counts, config.beta)
        )
        if self.variant == "v3":
            weights = torch.full_like(weights, config.constant)
        if self.variant == "v1":
            return F.hebb_combine(
                batch.logits, None, term, torch.ones_like(weights), eta=config.eta, gate=config.gate
            )
        delta = mbpa_result(batch, self.mbpa).delta
        return F.hebb_combine(batch.logits, delta, term, weights, eta=config.eta, gate=config.gate)

    def _classes(self, new: Tensor | None) -> Tensor | None:
        """Return the classes of N^new, None for all."""
        wanted = "all" if self.variant == "v2" else self.config.classes
        if wanted == "all" or (wanted == "auto" and new is None):
            return None
        return new


@dataclass(frozen=True, slots=True)
class Interpolated:
    """``w P_first + (1 - w) P_second``, e.g. Mixture+Hebb."""

    first: Rule
    second: Rule
    weight: float

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""
        return F.interpolate_log_probs(self.first.log_probs(batch), self.second.log_probs(batch), self.weight)

    def stabilized(self, batch: EvalBatch) -> Tensor:
        """Return the queries that either part stabilised."""
        return self.first.stabilized(batch) | self.second.stabilized(batch)
