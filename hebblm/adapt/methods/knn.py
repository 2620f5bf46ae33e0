"""kNN-LM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.memory_mixture import RememberedLabels, memory_mixture
from hebblm.adapt.methods.predictor import Method
from hebblm.adapt.settings import Section, Share, Temperature

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch


@dataclass(frozen=True, slots=True)
class KnnConfig(Section):
    """kNN-LM (Khandelwal et al. 2020).

    Args:
        temperature: T of the weights exp(-d^2 / T), a number or online: 1/4, 2/3 and 5/4, each with
            its own learned share.
        gamma: share of the neighbours, a number or learned online from the scored tokens.
        scale: d^2 relative to its standard deviation over the neighbours, or absolute as published.
    """

    section: ClassVar[str] = "knn"

    temperature: Temperature = "online"
    gamma: Share = "online"
    scale: Scale = "relative"


@dataclass(frozen=True, slots=True)
class KnnLM(RememberedLabels):
    """kNN-LM: neighbours weighted by distance (Khandelwal et al. 2020)."""

    name: ClassVar[str] = "knn"
    sharpness: ClassVar[str] = "temperature"

    config: KnnConfig

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        near, config = batch.found, self.config
        scores = -near.distances.to(batch.hidden.dtype)
        scores = F.log_weights(
            scores, near.mask, sharpness=1 / float(config.temperature), scale=config.scale
        )
        return scores, near.values, near.mask


KNN = Method(
    "knn",
    "kNN-LM",
    "baseline",
    lambda s: memory_mixture(KnnLM, s[KnnConfig]),
    (KnnConfig,),
    search_space=lambda s, grid: {
        "scale": [s[KnnConfig].scale],
        "temperature": grid.temperature,
        "gamma": grid.gamma,
    },
    plot_style=("#332288",),
)
