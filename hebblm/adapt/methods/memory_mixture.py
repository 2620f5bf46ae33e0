"""Labels of remembered entries, mixed with the base: the common part of cache, kNN-LM and
Mixture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import Share

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

SHARPNESS = (4.0, 1.5, 0.8)
ONLINE_VALUES = {"theta": SHARPNESS, "temperature": tuple(1 / sharpness for sharpness in SHARPNESS)}
"""Values that online mixes, by the name of the sharpness setting."""


@dataclass(frozen=True, slots=True)
class RememberedLabels(ABC):
    """``q(y) = sum_k 1[y_k = y] w_k``: labels of remembered entries, weighted by a score."""

    name: ClassVar[str]
    # whether entries are the latest of the stream, not those the memory found
    in_window: ClassVar[bool] = False
    sharpness: ClassVar[str] = "theta"

    config: Any  # settings with a sharpness that is a number

    @property
    def requirements(self) -> Requirements:
        return Requirements(retrieval=True)

    @abstractmethod
    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights (N, K), labels (N, K) or (1, K), and which entries each query sees (N,
        K).
        """

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return log-probabilities (N, V), nats, the base's for a query that sees no entry."""
        return batch.shared(
            self, lambda: F.memory_mixture(batch.log_probs, *self.entries(batch), weight=1.0)
        )

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats; +inf for a label that no entry has."""

        def compute() -> Tensor:
            return F.mixture_losses(batch.base_losses(targets), *self.entries(batch), 1.0, targets)

        return batch.scored(self, targets, compute)


@dataclass(frozen=True, slots=True)
class Mixed:
    """``sum_c w_c P_c`` of some rules, with shares learned from the scored tokens."""

    predictors: tuple[Predictor, ...]  # the last one gets the rest
    # sum of all shares but the last, a number or online; with two rules, the first one's share
    share: Share

    def log_probs(self, batch: EvalBatch) -> Tensor:
        def compute() -> Tensor:
            return F.log_mixture(
                (predictor.log_probs(batch) for predictor in self.predictors),
                self.log_mixture_weights(batch),
            )

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def compute() -> Tensor:
            return -F.log_mixture(
                (-losses for losses in self._losses(batch, targets)),
                self.log_mixture_weights(batch),
            )

        return batch.scored(self, targets, compute)

    @property
    def requirements(self) -> Requirements:
        requirements = Requirements(mixture_weights=(self,) if self._learns else ())
        for predictor in reversed(self.predictors):
            requirements = predictor.requirements | requirements
        return requirements

    @property
    def name(self) -> str:
        """Names of the mixed rules, each once, without the base."""
        return "+".join(
            dict.fromkeys(
                predictor.name for predictor in self.predictors if predictor.name != "base"
            )
        )

    @property
    def learned_as(self) -> str:
        return f"shares of {self.name}/1"

    @property
    def initial(self) -> F.OnlineMixtureWeights:
        total = None if isinstance(self.share, str) else self.share
        return F.OnlineMixtureWeights((0.0,) * (len(self.predictors) - 1), total=total)

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return losses of each target under the rules, (N, C) float64, nats."""
        import torch

        return torch.stack(self._losses(batch, targets), 1).double()

    @property
    def _learns(self) -> bool:
        return isinstance(self.share, str) or len(self.predictors) > 2

    def _losses(self, batch: EvalBatch, targets: Tensor) -> list[Tensor]:
        """Return losses (N,) under each rule, computed once; nats."""
        return batch.scored(
            ("parts", self),
            targets,
            lambda: [predictor.score(batch, targets) for predictor in self.predictors],
        )

    def log_mixture_weights(self, batch: EvalBatch) -> Tensor:
        """log w, (N, C) or (1, C) float64."""
        import torch

        if self._learns:
            return batch.learned_share(self).log()
        return torch.tensor(
            [[self.share, 1 - float(self.share)]], dtype=torch.float64, device=batch.hidden.device
        ).log()


def memory_mixture(kind: type[RememberedLabels], config: Any) -> Mixed:
    """Mix a memory, with share ``config.gamma``, and the base; an online sharpness needs one memory
    per value.
    """
    sharpness = getattr(config, kind.sharpness)
    values = ONLINE_VALUES[kind.sharpness] if isinstance(sharpness, str) else (sharpness,)
    memories = (kind(replace(config, **{kind.sharpness: value, "gamma": 1.0})) for value in values)
    return Mixed((*memories, Unadapted()), config.gamma)
