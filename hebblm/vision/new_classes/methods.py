"""The methods by name, as rules of ``hebblm.adapt`` on an image classifier's features and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hebblm.adapt.methods.hebb import Hebb, HebbConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.memory_mixture import memory_mixture
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.adapt.methods.rule import Rule
from hebblm.vision.new_classes.settings import AdaptationSettings

METHODS = ("parametric", "mixture", "mbpa", "hebb")
VARIANTS = ("hebb-v1", "hebb-v2", "hebb-v3")

Values = Mapping[str, Mapping[str, float]]
"""Hyper-parameters by method: of ``parametric`` lr; ``mixture`` theta, gamma; ``mbpa`` rate, steps, or pull; ``hebb``
and ``hebb-v2`` beta, eta; ``hebb-v1`` eta; ``hebb-v3`` constant, eta. Any further name is that of Hebb with values of
its own; ``hebb-N`` without values is Hebb with those of ``hebb`` and a memory of N pairs."""


@dataclass(frozen=True, slots=True)
class ImageMethod:
    """A rule and the memory it reads.

    Args:
        rule: from a mini-batch to log-probabilities.
        capacity: None for all training pairs and all that were observed; otherwise the memory holds the latest so many
            observed pairs only, 0 for none.
    """

    rule: Rule
    capacity: int | None = None


def grids(lr: tuple[float, ...], settings: AdaptationSettings) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return the values to choose from by method and hyper-parameter; ``lr`` are those of training."""
    beta, eta = settings.hebb_beta, settings.hebb_eta
    mbpa: dict[str, tuple[float, ...]] = {"rate": settings.mbpa_lambda, "steps": settings.mbpa_steps}
    if settings.mbpa_optimizer == "newton":
        mbpa = {"pull": settings.mbpa_pull}
    return {
        "parametric": {"lr": lr},
        "mixture": {"theta": settings.mixture_theta, "gamma": settings.mixture_gamma},
        "mbpa": mbpa,
        "hebb": {"beta": beta, "eta": eta},
        "hebb-v1": {"eta": eta},
        "hebb-v2": {"beta": beta, "eta": eta},
        "hebb-v3": {"constant": settings.hebb_constant, "eta": eta},
    }


def given_values(lr: float, settings: AdaptationSettings) -> dict[str, dict[str, float]]:
    """Return the first value of every grid."""
    return {name: {key: values[0] for key, values in grid.items()} for name, grid in grids((lr,), settings).items()}


def values_of(name: str, values: Values) -> dict[str, float]:
    """Return everything that a method runs with, MbPA's part of Hebb included."""
    if name in ("parametric", "mixture", "mbpa"):
        return dict(values[name])
    own = values.get(name, values["hebb"])  # Hebb-N takes over Hebb's
    return dict(own) if name == "hebb-v1" else {**values["mbpa"], **own}


def methods_of(names: Sequence[str], values: Values, settings: AdaptationSettings) -> dict[str, ImageMethod]:
    """Return methods by name with their hyper-parameters."""
    return {name: method_of(name, values, settings) for name in names}


def method_of(name: str, values: Values, settings: AdaptationSettings) -> ImageMethod:
    """Return one method with its hyper-parameters."""
    if name == "parametric":
        return ImageMethod(Unadapted(), 0)
    if name == "mixture":  # both sides normalised
        mixture = values[name]
        config = MixtureConfig(theta=mixture["theta"], gamma=mixture["gamma"], scale="absolute")
        return ImageMethod(memory_mixture(Mixture, config))
    own: dict[str, Any] = {**values["mbpa"]}
    mbpa = MbpaConfig(method="exact", eps=settings.eps, scale="absolute", weight=1.0)
    if settings.mbpa_optimizer == "newton":
        mbpa = replace(mbpa, pull=own["pull"])
    else:  # with a fresh state for each query
        mbpa = replace(mbpa, optimizer="rmsprop", rate="guarded", lr=own["rate"], steps=int(own["steps"]))
    if name == "mbpa":
        return ImageMethod(Mbpa(mbpa))
    own = {**values.get(name, values["hebb"])}
    # A value that a variant has no use for keeps its default.
    hebb = HebbConfig(**own, classes="new", scale="absolute", closeness="raw")
    if name in VARIANTS:
        return ImageMethod(Hebb(hebb, mbpa, name.removeprefix("hebb-")))
    return ImageMethod(Hebb(hebb, mbpa), None if name in values else int(name.removeprefix("hebb-")))
