"""The methods by name: the rule of each, and the settings that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from hebblm.adapt.gated import GatedMixture
from hebblm.adapt.hebb import Hebb
from hebblm.adapt.method_settings import MethodSettings, dotted
from hebblm.adapt.names import DYNAMIC
from hebblm.adapt.rules import Cache, Interpolated, KnnLM, Mbpa, Mixture, Rule, Tempered, Unadapted
from hebblm.adapt.settings import MixtureConfig


def mixture_cache(settings: MethodSettings) -> Cache:
    """Return the continuous cache over Mixture."""
    return Cache(settings.mixture_cache, Mixture(settings.mixture))


def hebb_learned(settings: MethodSettings) -> Hebb:
    """Return Hebb with a learned weight for each range of counts."""
    config = settings.hebb_learned
    return Hebb(config.over(settings.hebb), settings.mbpa, steps=config.steps)


RULES: dict[str, Callable[[MethodSettings], Rule]] = {
    "lstm": lambda s: Unadapted(),
    "cache": lambda s: Cache(s.cache),
    "knn": lambda s: KnnLM(s.knn),
    "mixture": lambda s: Mixture(s.mixture),
    "mbpa": lambda s: Mbpa(s.mbpa),
    "mbpa-absolute": lambda s: Mbpa(s.mbpa_absolute.over(s.mbpa)),
    "mbpa-guarded": lambda s: Mbpa(s.mbpa_guarded.over(s.mbpa)),
    "hebb": lambda s: Hebb(s.hebb, s.mbpa),
    "mixture+mbpa": lambda s: Interpolated(Mixture(s.mixture), Mbpa(s.mbpa), s.mixture_mbpa.weight),
    "mixture+hebb": lambda s: Interpolated(Mixture(s.mixture), Hebb(s.hebb, s.mbpa), s.mixture_hebb.weight),
    "mixture-gated": lambda s: GatedMixture(s.mixture_gated),
    "mixture+cache": mixture_cache,
    "hebb-learned": hebb_learned,
    "mixture+hebb-learned": lambda s: Interpolated(
        Mixture(s.mixture), hebb_learned(s), s.mixture_hebb_learned.weight
    ),
    "hebb-v1": lambda s: Hebb(s.hebb, s.mbpa, "v1"),
    "hebb-v2": lambda s: Hebb(s.hebb, s.mbpa, "v2"),
    "hebb-v3": lambda s: Hebb(s.hebb, s.mbpa, "v3"),
    "hebb-literal": lambda s: Hebb(replace(s.hebb, gate="literal"), s.mbpa),
}
"""Methods that read the hidden states of the base as trained, or as it learns for all of them alike."""


def _dynamic_mixture(settings: MethodSettings) -> Mixture:
    config = settings.dynamic_mixture
    return Mixture(MixtureConfig(config.theta, config.gamma, scale=config.scale))


def _dynamic_mixture_cache(settings: MethodSettings) -> Cache:
    return Cache(settings.dynamic_mixture_cache, _dynamic_mixture(settings))


DYNAMIC_RULES: dict[str, Callable[[MethodSettings], Rule]] = {
    DYNAMIC: lambda s: Unadapted(),
    "dynamic+mixture": _dynamic_mixture,
    "dynamic+mixture+hebb": lambda s: Interpolated(
        _dynamic_mixture(s), Hebb(s.hebb, s.mbpa), s.dynamic_mixture_hebb.weight
    ),
    "dynamic+mixture+cache": _dynamic_mixture_cache,
}
"""Methods that read the moving hidden states of dynamic evaluation, a base of its own."""

WINDOWED = {
    "cache": "cache",
    "mixture+cache": "mixture_cache",
    "dynamic+mixture+cache": "dynamic_mixture_cache",
}
"""Methods that read the recent past, with the section of the settings that says how much of it."""

_USED: dict[str, tuple[str, ...]] = {
    "lstm": (),
    "cache": ("cache",),
    "knn": ("knn",),
    "mixture": ("mixture",),
    "mbpa": ("mbpa",),
    "mbpa-absolute": ("mbpa_absolute", "mbpa"),
    "mbpa-guarded": ("mbpa_guarded", "mbpa"),
    "mixture+mbpa": ("mixture", "mbpa", "mixture_mbpa"),
    "mixture+hebb": ("mixture", "mbpa", "hebb", "mixture_hebb"),
    "mixture-gated": ("mixture_gated",),
    "hebb-learned": ("mbpa", "hebb", "hebb_learned"),
    "mixture+hebb-learned": ("mixture", "mbpa", "hebb", "hebb_learned", "mixture_hebb_learned"),
    "mixture+cache": ("mixture", "mixture_cache"),
    DYNAMIC: (),
    "dynamic+mixture": ("dynamic_mixture",),
    "dynamic+mixture+hebb": ("dynamic_mixture", "mbpa", "hebb", "dynamic_mixture_hebb"),
    "dynamic+mixture+cache": ("dynamic_mixture", "dynamic_mixture_cache"),
}


def build_rule(name: str, settings: MethodSettings) -> Rule:
    """Return the rule of a method, at its temperature."""
    rule, temperature = {**RULES, **DYNAMIC_RULES}[name](settings), settings.tempered.of(name)
    return rule if temperature == 1 else Tempered(rule, temperature)


def hyperparameters(name: str, settings: MethodSettings) -> dict[str, Any]:
    """Return the settings that a method depends on, as JSON."""
    used = _USED.get(name, ("mbpa", "hebb"))
    values = {section: asdict(getattr(settings, section)) for section in used}
    found = values[used[0]] if len(used) == 1 else values
    temperature = settings.tempered.of(name)
    return found if temperature == 1 else {**found, "tempered": {dotted(name): temperature}}


def window_of(methods: Iterable[str], settings: MethodSettings) -> int:
    """Return how many of the latest pairs some methods look back at, 0 for none."""
    return max((getattr(settings, WINDOWED[name]).window for name in methods if name in WINDOWED), default=0)
