"""The settings of all methods together, and the temperature of each."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from hebblm.adapt import checks
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.best import BestConfig
from hebblm.adapt.methods.cache import CacheConfig, MixtureCacheConfig
from hebblm.adapt.methods.combine import MixtureHebbConfig, MixtureHebbLearnedConfig, MixtureMbpaConfig
from hebblm.adapt.methods.dynamic import (
    DynamicMixtureCacheConfig,
    DynamicMixtureConfig,
    DynamicMixtureHebbConfig,
)
from hebblm.adapt.methods.gated import MixtureGatedConfig
from hebblm.adapt.methods.hebb import HebbConfig, HebbLearnedConfig
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig, MbpaConfig, MbpaGuardedConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.rule import dotted
from hebblm.adapt.section import Section

Warmth = Annotated[float, partial(checks.within, low=0.01, high=100)]
"""A temperature of a distribution: a loss is divided by it, and has to stay a number that a table can show."""


@dataclass(frozen=True, slots=True)
class TemperedConfig(Section):
    """Temperature T of each method's whole distribution, softmax(log P / T); 1 leaves it as it is.

    One field a method, as :func:`dotted` writes it. The temperature of kNN-LM's weights is ``knn.temperature``.
    """

    section: ClassVar[str] = "tempered"

    if TYPE_CHECKING:  # the fields are made from the records, below

        def __init__(self, **temperatures: float) -> None: ...

    def of(self, method: str) -> float:
        """Return the temperature of a method; 1 for one that has none."""
        return float(getattr(self, dotted(method), 1.0))


if not TYPE_CHECKING:
    TemperedConfig = make_dataclass(
        "TemperedConfig",
        [(dotted(method.name), Warmth, 1.0) for method in METHODS.values() if method.tempered],
        bases=(TemperedConfig,),
        namespace={"__module__": __name__, "__doc__": TemperedConfig.__doc__},
        frozen=True,
        slots=True,
    )


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """Hyper-parameters of all methods that work on hidden states."""

    cache: CacheConfig = field(default_factory=CacheConfig)
    knn: KnnConfig = field(default_factory=KnnConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    mbpa: MbpaConfig = field(default_factory=MbpaConfig)
    mbpa_absolute: MbpaAbsoluteConfig = field(default_factory=MbpaAbsoluteConfig)
    mbpa_guarded: MbpaGuardedConfig = field(default_factory=MbpaGuardedConfig)
    hebb: HebbConfig = field(default_factory=HebbConfig)
    mixture_mbpa: MixtureMbpaConfig = field(default_factory=MixtureMbpaConfig)
    mixture_hebb: MixtureHebbConfig = field(default_factory=MixtureHebbConfig)
    mixture_gated: MixtureGatedConfig = field(default_factory=MixtureGatedConfig)
    hebb_learned: HebbLearnedConfig = field(default_factory=HebbLearnedConfig)
    mixture_hebb_learned: MixtureHebbLearnedConfig = field(default_factory=MixtureHebbLearnedConfig)
    dynamic_mixture: DynamicMixtureConfig = field(default_factory=DynamicMixtureConfig)
    mixture_cache: MixtureCacheConfig = field(default_factory=MixtureCacheConfig)
    dynamic_mixture_hebb: DynamicMixtureHebbConfig = field(default_factory=DynamicMixtureHebbConfig)
    dynamic_mixture_cache: DynamicMixtureCacheConfig = field(default_factory=DynamicMixtureCacheConfig)
    best: BestConfig = field(default_factory=BestConfig)
    tempered: TemperedConfig = field(default_factory=TemperedConfig)
