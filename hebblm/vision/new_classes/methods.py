"""The methods by name, as rules of ``hebblm.adapt`` on an image classifier's features and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hebblm.adapt import Hebb, HebbConfig, Mbpa, MbpaConfig, Mixture, MixtureConfig, Rule, Unadapted
from hebblm.vision.new_classes.settings import AdaptationSettings

METHODS = ("parametric", "mixture", "mbpa", "hebb")
VARIANTS = ("hebb-v1", "hebb-v2", "hebb-v3")

Values = Mapping[str, Mapping[str, float]]
"""Hyper-parameters by method: of ``parametric`` lr; ``mixture`` theta, gamma; ``mbpa`` rate, steps; ``hebb`` and
``hebb-v2`` beta, eta; ``hebb-v1`` eta; ``hebb-v3`` constant, eta. Any further name is that of Hebb with values of its
own; ``hebb-N`` without values is Hebb with those of ``hebb`` and a memory of N pairs."""


@dataclass(frozen=True, slots=True)
class Method:
    """A rule and the memory it reads.

    Args:
        rule: from a mini-batch to log-probabilities.
        capacity: None for all training pairs and all that were observed; otherwise the memory holds the latest so many
            observed pairs only, 0 for none.
    """

    rule: Rule
    capacity: int | None = None


def ring_names(settings: AdaptationSettings) -> tuple[str, ...]:
    """Return the names of the methods with a memory of fixed size."""
    return tuple(f"hebb-{capacity}" for capacity in settings.rings)


def given_values(lr: float, settings: AdaptationSettings) -> dict[str, dict[str, float]]:
    """Return the first value of every grid."""
    beta, eta = settings.hebb_beta[0], settings.hebb_eta[0]
    return {
        "parametric": {"lr": lr},
        "mixture": {"theta": settings.mixture_theta[0], "gamma": settings.mixture_gamma[0]},
        "mbpa": {"rate": settings.mbpa_lambda[0], "steps": settings.mbpa_steps[0]},
        "hebb": {"beta": beta, "eta": eta},
        "hebb-v1": {"eta": eta},
        "hebb-v2": {"beta": beta, "eta": eta},
        "hebb-v3": {"constant": settings.hebb_constant[0], "eta": eta},
    }


def values_of(name: str, values: Values) -> dict[str, float]:
    """Return everything that a method runs with, MbPA's part of Hebb included."""
    if name in ("parametric", "mixture", "mbpa"):
        return dict(values[name])
    own = values.get(name, values["hebb"])  # Hebb-N takes over Hebb's
    return dict(own) if name == "hebb-v1" else {**values["mbpa"], **own}


def methods_of(names: Sequence[str], values: Values, settings: AdaptationSettings) -> dict[str, Method]:
    """Return methods by name with their hyper-parameters."""
    return {name: _method(name, values, settings) for name in names}


def mixture_config(values: Mapping[str, float]) -> MixtureConfig:
    """Return Mixture with both sides normalised."""
    return MixtureConfig(theta=values["theta"], gamma=values["gamma"], scale="absolute")


def mbpa_config(values: Mapping[str, float], settings: AdaptationSettings) -> MbpaConfig:
    """Return MbPA for images: exact RMSprop with a fresh state for each query."""
    return MbpaConfig(
        lr=values["rate"],
        rate="guarded",
        steps=int(values["steps"]),
        optimizer="rmsprop",
        method="exact",
        eps=settings.eps,
        scale="absolute",
    )


def hebb_config(values: Mapping[str, float]) -> HebbConfig:
    """Return Hebb over the new classes; a value that a variant has no use for keeps its default."""
    plain = HebbConfig()
    return HebbConfig(
        beta=values.get("beta", plain.beta),
        eta=values["eta"],
        constant=values.get("constant", plain.constant),
        classes="new",
        scale="absolute",
        closeness="raw",
    )


def _method(name: str, values: Values, settings: AdaptationSettings) -> Method:
    """Return one method."""
    if name == "parametric":
        return Method(Unadapted(), 0)
    if name == "mixture":
        return Method(Mixture(mixture_config(values[name])))
    mbpa = mbpa_config(values["mbpa"], settings)
    if name == "mbpa":
        return Method(Mbpa(mbpa))
    if name in VARIANTS:
        return Method(Hebb(hebb_config(values[name]), mbpa, name.removeprefix("hebb-")))
    if name in values:
        return Method(Hebb(hebb_config(values[name]), mbpa))
    return Method(Hebb(hebb_config(values["hebb"]), mbpa), int(name.removeprefix("hebb-")))
