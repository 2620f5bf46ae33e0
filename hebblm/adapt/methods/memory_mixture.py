"""Labels of remembered entries beside another rule: what cache, kNN-LM and Mixture share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.rule import Blend, Needs, Rule, learned, weight_of
from hebblm.adapt.section import ONLINE, Share

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

PAIR = (0.6, 2.0)  # of sharpness, or temperature, where it is online


@dataclass(frozen=True, slots=True)
class MemoryMixture(Blend):
    """``gamma q + (1 - gamma) p``: labels of remembered entries, weighted by a score, beside another rule's p.

    Args:
        config: settings with a share ``gamma`` and the sharpness, each a number or ``online``.
        over: what the rest of the probability is predicted by.
    """

    sharpness: ClassVar[str] = "theta"

    config: Any
    over: Rule = field(default_factory=Unadapted)

    @property
    def share(self) -> Share:
        """gamma."""
        gamma: Share = self.config.gamma
        return gamma

    @property
    def needs(self) -> Needs:
        """Neighbours, and what the rest is predicted by."""
        return self.over.needs | Needs(retrieval=True, shares=learned(self))

    @abstractmethod
    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights (N, K), labels (N, K) or (1, K), and which entries each query sees (N, K)."""

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
            if not isinstance(weight, int | float):
                return F.interpolated_losses(*batch.parts(self, targets), weight)
            return F.mixture_losses(self.over.score(batch, targets), *self.entries(batch), weight, targets)

        return batch.scored(self, targets, compute)

    def parts(self, batch: EvalBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of memory and other rule, equal for a query that sees no entry; nats."""
        base = self.over.score(batch, targets)
        return F.mixture_losses(base, *self.entries(batch), 1.0, targets), base


@dataclass(frozen=True, slots=True)
class Interpolated(Blend):
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
        return F.interpolated_losses(*batch.parts(self, targets), weight_of(self, batch))

    def parts(self, batch: EvalBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of both, nats."""
        return self.first.score(batch, targets), self.second.score(batch, targets)

    @property
    def needs(self) -> Needs:
        """Requirements of both parts."""
        return self.first.needs | self.second.needs | Needs(shares=learned(self))


def memory_mixture(kind: type[MemoryMixture], config: Any, over: Rule) -> Rule:
    """Return the rule of some settings; where their sharpness is online, two memories of one sharpness each, mixed.

    Args:
        kind: the rule of settings whose sharpness is a number.
        config: its settings.
        over: what the rest of the probability is predicted by.
    """
    if not isinstance(getattr(config, kind.sharpness), str):
        return kind(config, over)
    flat, sharp = (kind(replace(config, **{kind.sharpness: value, "gamma": 1.0}), over) for value in PAIR)
    return Interpolated(Interpolated(sharp, flat, ONLINE), over, config.gamma)
