"""Mixture whose shares depend on the query: a softmax gate that goes on learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hebblm.adapt import functional as F
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.requirements import Requirements

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch


@dataclass(frozen=True, slots=True)
class Gated:
    """``sum_c w_c P_c`` with ``w = softmax(G x)``: shares of the parts that depend on the query.

    The features (F) do not depend on the answer. x holds them as they are, then faded from the
    beginning of a text on. G goes on learning from the scored tokens, see
    :class:`hebblm.adapt.functional.LearnedGate`.
    """

    name: str
    learned_as: str
    predictors: tuple[Predictor, ...]
    features: Callable[[EvalBatch], Tensor]  # (N, F) float64
    weights: tuple[tuple[float, ...], ...]  # (C, 2F) G before the first token
    lr: float  # learning rate of G; 0 keeps it fixed
    anchor: int | None  # the part that the mixture is never much worse than
    needed: Requirements  # of the features

    def log_probs(self, batch: EvalBatch) -> Tensor:
        def compute() -> Tensor:
            return F.log_mixture(
                (predictor.log_probs(batch) for predictor in self.predictors),
                self.log_mixture_weights(batch),
            )

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def compute() -> Tensor:
            losses = F.gated_losses(self._losses(batch, targets), self.log_mixture_weights(batch))
            return losses.to(batch.logits.dtype)

        return batch.scored(self, targets, compute)

    @property
    def requirements(self) -> Requirements:
        requirements = Requirements(mixture_weights=(self,) if self.lr else ()) | self.needed
        for predictor in self.predictors:
            requirements = predictor.requirements | requirements
        return requirements

    @property
    def initial(self) -> F.LearnedGate:
        """Return the shipped gate."""
        import torch

        weights = torch.tensor(self.weights, dtype=torch.float64, device="cpu")
        return F.LearnedGate(weights, self.lr, self.anchor if self.lr else None)

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return losses of each token under the parts, nats, and its features, (N, C + F)
        float64.
        """
        import torch

        return torch.cat([self._losses(batch, targets), self.features(batch)], 1)

    def _losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return losses (N, C) of the parts, nats, float64."""
        import torch

        def compute() -> Tensor:
            return torch.stack(
                [predictor.score(batch, targets) for predictor in self.predictors], 1
            ).double()

        return batch.scored(("components", self), targets, compute)

    def log_mixture_weights(self, batch: EvalBatch) -> Tensor:
        """log w (N, C), float64."""

        def compute() -> Tensor:
            import torch

            features, device = self.features(batch), batch.hidden.device
            if not self.lr:
                return self.initial.log_mixture_weights(features.cpu()).to(device)
            gates, rows = batch.learned(self)
            weights = torch.stack([gate.weights for gate in gates]).to(device)[rows]  # (N, C, 2F)
            numbers = [(gate.nearness, gate.odds) for gate in gates]
            nearness, odds = torch.tensor(numbers, dtype=torch.float64, device=device)[rows].unbind(
                1
            )
            return F.anchored(
                F.log_softmax_weights(F.placed(features, nearness), weights), odds, self.anchor
            )

        return batch.shared(("shares", self), compute)
