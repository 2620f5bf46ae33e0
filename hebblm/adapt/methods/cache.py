"""The continuous cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.memory_mixture import RememberedLabels, memory_mixture
from hebblm.adapt.methods.predictor import Method
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import Count, Section, Share, Sharpness

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch


@dataclass(frozen=True, slots=True)
class CacheConfig(Section):
    """Continuous cache (Grave, Joulin and Usunier 2017).

    Args:
        window: number of most recent tokens it remembers; published for AWD-LSTM: 500 (PTB) and
            3785 (WikiText-2).
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 4, 1.5 and 0.8, each
            with its own learned share; published, absolute: 1.0 (PTB) and 0.662 (WikiText-2).
        gamma: share of the cache, a number or learned online; published: 0.1 (PTB) and 0.1279
            (WikiText-2).
        scale: h_k . h relative to its standard deviation over the query's entries, or absolute as
            published.
    """

    section: ClassVar[str] = "cache"

    window: Count = 2000
    theta: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"


@dataclass(frozen=True, slots=True)
class Cache(RememberedLabels):
    """Continuous cache: every pair in a window of the recent past (Grave et al. 2017)."""

    name: ClassVar[str] = "cache"
    in_window: ClassVar[bool] = True

    config: CacheConfig

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        past, config = batch.window(self.config.window), self.config
        scores = F.log_weights(
            past.products, past.seen, sharpness=float(config.theta), scale=config.scale
        )
        return scores, past.labels, past.seen

    @property
    def requirements(self) -> Requirements:
        return Requirements(window=self.config.window)


CACHE = Method(
    "cache",
    "Cache",
    "baseline",
    lambda s: memory_mixture(Cache, s[CacheConfig]),
    (CacheConfig,),
    search_space=lambda s, grid: {
        "scale": [s[CacheConfig].scale],
        "theta": grid.theta,
        "gamma": grid.gamma,
    },
    plot_style=("#88ccee",),
)
