"""Hebb with a weight learned for each range of counts: its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hebblm.adapt import checks
from hebblm.adapt.checks import Scale, Share
from hebblm.adapt.settings import HebbConfig

RANGES = ("n1", "n2", "n4", "n8", "n16", "n32", "n64", "more")


@dataclass(frozen=True, slots=True)
class HebbLearnedConfig:
    """Hebb whose E_i is a step function of n_i; hebblm-tune learns it. The defaults are means of
    what was learned on two validation texts (recipes/defaults).

    Args:
        eta: strength of the Hebbian term, as for hebb.
        closeness: of the Hebbian term's entries, as for hebb; bounded unless raw is asked for.
        scale: of the Hebbian term, as for hebb.
        n1: E_i of a class with one example.
        n2: with two.
        n4: with three or four.
        n8: with five to eight.
        n16: with nine to 16.
        n32: with 17 to 32.
        n64: with 33 to 64.
        more: with more.
    """

    eta: float = 15.0
    closeness: Literal["raw", "sum", "max"] = "max"
    scale: Scale = "relative"
    n1: float = 0.36
    n2: float = 0.41
    n4: float = 0.45
    n8: float = 0.28
    n16: float = 0.3
    n32: float = 0.26
    n64: float = 0.13
    more: float = 0.038

    def __post_init__(self) -> None:
        checks.at_least("hebb_learned.eta", self.eta, 0)
        for name in RANGES:
            checks.share(f"hebb_learned.{name}", getattr(self, name))

    @property
    def steps(self) -> tuple[float, ...]:
        """E_i by ranges of counts."""
        return tuple(getattr(self, name) for name in RANGES)

    def over(self, hebb: HebbConfig) -> HebbConfig:
        """Return the settings of the term itself; all that is not set here is that of ``hebb``."""
        return replace(hebb, eta=self.eta, closeness=self.closeness, scale=self.scale)


@dataclass(frozen=True, slots=True)
class MixtureHebbLearnedConfig:
    """Mixture+Hebb-learned.

    Args:
        weight: share w of Mixture, learned online or a number; the rest is Hebb's.
    """

    weight: Share = "online"

    def __post_init__(self) -> None:
        checks.share_or_online("mixture_hebb_learned.weight", self.weight)
