"""Mixture and another method, interpolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hebblm.adapt.methods.hebb import HebbConfig, hebb_rule
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.memory_mixture import Mixed
from hebblm.adapt.methods.mixture import MixtureConfig, mixture_predictor
from hebblm.adapt.methods.predictor import Method
from hebblm.adapt.settings import Section, Share


@dataclass(frozen=True, slots=True)
class BesideMixtureConfig(Section):
    """Mixture combined with another method.

    Args:
        weight: share w of Mixture, a number or learned online; the other method gets the rest.
    """

    weight: Share = "online"


class MixtureMbpaConfig(BesideMixtureConfig):
    """Mixture+MbPA."""

    section: ClassVar[str] = "mixture_mbpa"


class MixtureHebbConfig(BesideMixtureConfig):
    """Mixture+Hebb."""

    section: ClassVar[str] = "mixture_hebb"


MIXTURE_MBPA = Method(
    "mixture+mbpa",
    "Mixture+MbPA",
    "paper",
    lambda s: Mixed((mixture_predictor(s), Mbpa(s[MbpaConfig])), s[MixtureMbpaConfig].weight),
    (MixtureConfig, MbpaConfig, MixtureMbpaConfig),
    parts=("mixture", "mbpa"),
    plot_style=("#44aa99", "--"),
)
MIXTURE_HEBB = Method(
    "mixture+hebb",
    "Mixture+Hebb",
    "paper",
    lambda s: Mixed((mixture_predictor(s), hebb_rule(s)), s[MixtureHebbConfig].weight),
    (MixtureConfig, MbpaConfig, HebbConfig, MixtureHebbConfig),
    parts=("mixture", "hebb"),
    plot_style=("#882255", "--"),
)
