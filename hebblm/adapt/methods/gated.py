"""Mixture whose share depends on how sure retrieval and base are, query by query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.rule import Method, Needs
from hebblm.adapt.section import Finite, NonNegative, Section

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

NEAREST = 1e-3  # added to the nearest squared distance, which is 0 where a state comes again


@dataclass(frozen=True, slots=True)
class MixtureGatedConfig(Section):
    """Mixture whose share depends on the query; the coefficients are learned by hebblm-tune.

    Args:
        theta: sharpness of the weights exp(theta h_k . h).
        bias: constant term of the gate.
        distance: coefficient of the log squared distance of the nearest entry.
        entropy: coefficient of the entropy of the neighbours' labels, in nats.
        peak: coefficient of the base's largest log-probability, in nats.
        scale: products relative to their standard deviation and distance to its mean over the neighbours, or absolute.
    """

    section: ClassVar[str] = "mixture_gated"

    theta: NonNegative = 1.0
    bias: Finite = -1.5
    distance: Finite = 0.0
    entropy: Finite = 0.0
    peak: Finite = 0.0
    scale: Scale = "relative"


@dataclass(frozen=True, slots=True)
class GatedMixture:
    """``(1 - gamma_i) P_base + gamma_i q`` with q as in Mixture and a share for each query.

    ``gamma_i = sigmoid(bias + distance log(1e-3 + d_1^2) + entropy H(q) + peak max_y log P_base(y))``, where d_1 is the
    distance of the nearest entry, relative to the root mean square of all of them or absolute. Nothing of it depends on
    the answer.
    """

    name: ClassVar[str] = "mixture-gated"

    config: MixtureGatedConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats; the base's for a query without neighbours."""

        def compute() -> Tensor:
            near, gate = batch.neighbors, self._gate(batch)[:, None]  # (N, 1)
            memory = F.memory_mixture(batch.log_probs, self._scores(batch), near.values, near.mask, 1.0)
            mixed = F.gated(memory, batch.log_probs, gate)
            return mixed.where(near.mask.any(1, keepdim=True), batch.log_probs)

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""

        def compute() -> Tensor:
            near, gate = batch.neighbors, self._gate(batch)
            base = batch.base_losses(targets)
            memory = F.mixture_losses(base, self._scores(batch), near.values, near.mask, 1.0, targets)
            return (-F.gated(-memory, -base, gate)).where(near.mask.any(1), base)

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Neighbours."""
        return Needs(retrieval=True)

    def _scores(self, batch: EvalBatch) -> Tensor:
        """Return the log-weights (N, K) of the neighbours."""
        config = self.config
        return F.log_weights(batch.products, batch.neighbors.mask, sharpness=config.theta, scale=config.scale)

    def _gate(self, batch: EvalBatch) -> Tensor:
        """Return the logit (N,) of the share; of no meaning for a query without neighbours."""
        config = self.config
        nearest = nearest_distance(batch, config.scale).masked_fill(~batch.neighbors.mask[:, 0], 0.0)
        return (
            config.bias
            + config.distance * nearest
            + config.entropy * label_entropy(batch, config.theta, config.scale)
            + config.peak * base_peak(batch)
        )


def label_entropy(batch: EvalBatch, theta: float, scale: F.Scale) -> Tensor:
    """Return the entropy (N,) in nats of the neighbours' labels under ``softmax_k(theta h_k . h)``; 0 without any."""

    def compute() -> Tensor:
        near = batch.neighbors
        scores = F.log_weights(batch.products, near.mask, sharpness=theta, scale=scale)
        return F.label_entropy(scores, near.values, near.mask)

    return batch.shared(("label entropy", theta, scale), compute)


def nearest_distance(batch: EvalBatch, scale: F.Scale) -> Tensor:
    """Return ``log(1e-3 + d^2)`` (N,) of the nearest entry, d^2 over its mean if ``relative``; +inf without any."""
    near = batch.neighbors
    distances = near.distances.to(batch.hidden.dtype)
    if scale == "relative":
        distances = F.relative_distances(distances, near.mask)
    return (distances[:, 0] + NEAREST).log().masked_fill(~near.mask[:, 0], math.inf)


def base_peak(batch: EvalBatch) -> Tensor:
    """Return the base's largest log-probability (N,), nats."""
    return batch.logits.amax(1) - batch.log_normalizers


MIXTURE_GATED = Method(
    "mixture-gated",
    "Mixture-gated (ours)",
    "ours",
    lambda s: GatedMixture(s[MixtureGatedConfig]),
    (MixtureGatedConfig,),
    look=("#117733", ":"),
)
