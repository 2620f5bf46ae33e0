"""Mixture, and what is built on it, over the moving states of dynamic evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.cache import MixtureCacheConfig, cache_over_mixture, tried_over_mixture
from hebblm.adapt.methods.combine import BesideMixtureConfig, beside_mixture
from hebblm.adapt.methods.hebb import HebbConfig, hebb_rule
from hebblm.adapt.methods.lstm import DYNAMIC
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.mixture import MixtureConfig, mixture_rule
from hebblm.adapt.methods.rule import Method
from hebblm.adapt.section import Section, Share, Sharpness

if TYPE_CHECKING:
    from hebblm.adapt.settings import MethodSettings


@dataclass(frozen=True, slots=True)
class DynamicMixtureConfig(Section):
    """Mixture over the moving states of dynamic evaluation.

    Args:
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 4, 1.5 and 0.8, each with a share of
            its own that is learned.
        gamma: share of the neighbours: learned online from the tokens already scored, or a number.
        scale: of h_k . h, as for mixture.
    """

    section: ClassVar[str] = "dynamic_mixture"

    theta: Sharpness = "online"
    gamma: Share = "online"
    scale: Scale = "relative"


class DynamicMixtureHebbConfig(BesideMixtureConfig):
    """Mixture+Hebb over the moving states of dynamic evaluation."""

    section = "dynamic_mixture_hebb"


@dataclass(frozen=True, slots=True)
class DynamicMixtureCacheConfig(MixtureCacheConfig):
    """Continuous cache on top of Mixture, both over the moving states of dynamic evaluation."""

    section: ClassVar[str] = "dynamic_mixture_cache"


def _over_dynamic(settings: MethodSettings) -> MethodSettings:
    """Return settings whose Mixture and cache over it are those for the states of dynamic evaluation."""
    config = settings[DynamicMixtureConfig]
    return settings.replaced(
        MixtureConfig(config.theta, config.gamma, scale=config.scale),
        MixtureCacheConfig(**asdict(settings[DynamicMixtureCacheConfig])),
    )


OVER_DYNAMIC = (
    Method(
        "dynamic+mixture",
        "Dynamic+Mixture (ours)",
        "ours",
        lambda s: mixture_rule(_over_dynamic(s)),
        (DynamicMixtureConfig,),
        parts=(DYNAMIC,),
        tried=lambda s, grid: {"scale": [s[MixtureConfig].scale], "theta": grid.theta, "gamma": grid.gamma},
        moving=True,
        look=("#999933", "--"),
    ),
    Method(
        "dynamic+mixture+hebb",
        "Dynamic+Mixture+Hebb (ours)",
        "ours",
        lambda s: beside_mixture(_over_dynamic(s), hebb_rule(s), s[DynamicMixtureHebbConfig].weight),
        (DynamicMixtureConfig, MbpaConfig, HebbConfig, DynamicMixtureHebbConfig),
        parts=("dynamic+mixture", "hebb"),
        moving=True,
        look=("#999933", "-."),
    ),
    Method(
        "dynamic+mixture+cache",
        "Dynamic+Mixture+Cache (ours)",
        "ours",
        lambda s: cache_over_mixture(_over_dynamic(s)),
        (DynamicMixtureConfig, DynamicMixtureCacheConfig),
        parts=("dynamic+mixture",),
        tried=tried_over_mixture,
        moving=True,
        look=("#999933", ":"),
    ),
)
