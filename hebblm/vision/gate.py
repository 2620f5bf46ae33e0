"""``best`` of images: network, Mixture, MbPA and Hebb, mixed by the gate that ``best`` has for
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional.gating import LearnedGate
from hebblm.adapt.methods.best import FEATURES as TEXT_FEATURES
from hebblm.adapt.methods.best import gate_features
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.vision.result import GATE

PARTS = ("network", "mixture", "mbpa", "hebb")
FEATURES = (*TEXT_FEATURES, "network's mass on new classes", "neighbours of new classes")


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """Features of the gate: those for text, and how far the picture looks like one of a new
    class.
    """

    def __call__(self, batch: EvalBatch) -> Tensor:
        """Return the features (N, F) of :data:`FEATURES`, float64; none depends on the labels."""
        return batch.shared(self, lambda: self._compute(batch))

    def _compute(self, batch: EvalBatch) -> Tensor:
        near = batch.searched
        new = batch.context.new_classes
        if new is None:
            raise ValueError("the gate of images needs to know which classes are new")
        mass = batch.log_probs.exp()[:, new].sum(1)  # (N,)
        count = near.mask.sum(1).clamp_min(1)
        share = (new[near.values] & near.mask).sum(1) / count  # (N,)
        features = torch.stack([mass.double(), share.double()], 1)
        return torch.cat([gate_features(batch), features], 1)


def image_best(predictors: tuple[Predictor, ...], values: Mapping[str, float]) -> Gated:
    """Return the mixture of the rules of :data:`PARTS`.

    All parts have equal shares where ``values`` has no weights. The gate learns from what is
    scored at the rate ``values["lr"]``; at 0 it stays as it is.
    """
    # The second half of a text's weights is for the beginning of a text, which a stream of
    # pictures does not have.
    at_beginning = (0.0,) * len(FEATURES)
    weights = []
    for part in PARTS:
        of_part = tuple(values.get(f"{GATE}{part}, {name}", 0.0) for name in FEATURES)
        weights.append(of_part + at_beginning)
    return Gated(
        name="best",
        learned_as="gate of network,mixture,mbpa,hebb/1",
        predictors=predictors,
        features=ImageFeatures(),
        weights=tuple(weights),
        lr=values["lr"],
        anchor=None,
        needed=Requirements(retrieval=True),
    )


def weights_of(gate: LearnedGate) -> dict[str, float]:
    """Return the weights that a gate has learned, by the names :func:`image_best` knows."""
    weights = {}
    for part, row in zip(PARTS, gate.weights, strict=True):
        for name, weight in zip(FEATURES, row[: len(FEATURES)], strict=True):
            weights[f"{GATE}{part}, {name}"] = float(weight)
    return weights
