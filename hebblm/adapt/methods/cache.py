"""The continuous cache, over the base or over Mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.memory_mixture import RememberedLabels, memory_mixture
from hebblm.adapt.methods.mixture import MixtureConfig, mixture_rule
from hebblm.adapt.methods.rule import Method, Needs, Rule
from hebblm.adapt.section import Count, Section, Share, Sharpness

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.grid import Axes, Grid
    from hebblm.adapt.settings import MethodSettings


@dataclass(frozen=True, slots=True)
class CacheConfig(Section):
    """Continuous cache (Grave, Joulin and Usunier 2017).

    Args:
        window: number of most recent tokens it remembers; 500 (PTB) and 3785 (WikiText-2) were published for AWD-LSTM.
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 4, 1.5 and 0.8, each with a share of
            its own that is learned; absolute ones of 1.0 (PTB) and 0.662 (WikiText-2) were published.
        gamma: share of the cache, learned online or a number; published 0.1 (PTB) and 0.1279 (WikiText-2).
        scale: h_k . h relative to its standard deviation over what a query sees, or absolute as published.
    """

    section: ClassVar[str] = "cache"

    window: Count = 2000
    theta: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"


@dataclass(frozen=True, slots=True)
class MixtureCacheConfig(CacheConfig):
    """Continuous cache on top of Mixture, whose share is the rest; the window keeps states as they were when read."""

    section: ClassVar[str] = "mixture_cache"


@dataclass(frozen=True, slots=True)
class Cache(RememberedLabels):
    """Continuous cache: every pair in a window of the recent past (Grave et al. 2017).

    Args:
        config: window and sharpness.
        over: what predicts for a query that sees no pair.
    """

    name: ClassVar[str] = "cache"

    config: CacheConfig

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, labels and visibility of the window's pairs."""
        past, config = batch.window(self.config.window), self.config
        scores = F.log_weights(past.products, past.seen, sharpness=float(config.theta), scale=config.scale)
        return scores, past.labels, past.seen

    @property
    def needs(self) -> Needs:
        """The recent past, and what the cache lies over."""
        return self.over.needs | Needs(window=self.config.window)


def cache_over_mixture(settings: MethodSettings) -> Rule:
    """Return the cache over Mixture."""
    return memory_mixture(Cache, settings[MixtureCacheConfig], mixture_rule(settings))


def tried_over_mixture(settings: MethodSettings, grid: Grid) -> Axes:
    """Return the values that are tried of the cache over Mixture; window and scale are those of the cache alone."""
    alone = settings[CacheConfig]
    return {"window": [alone.window], "scale": [alone.scale], "theta": grid.theta, "gamma": grid.gamma}


CACHE = Method(
    "cache",
    "Cache",
    "baseline",
    lambda s: memory_mixture(Cache, s[CacheConfig], Unadapted()),
    (CacheConfig,),
    tried=lambda s, grid: {"scale": [s[CacheConfig].scale], "theta": grid.theta, "gamma": grid.gamma},
    look=("#88ccee",),
)
MIXTURE_CACHE = Method(
    "mixture+cache",
    "Mixture+Cache (ours)",
    "ours",
    cache_over_mixture,
    (MixtureConfig, MixtureCacheConfig),
    parts=("mixture",),
    tried=tried_over_mixture,
    look=("#88ccee", "--"),
)
