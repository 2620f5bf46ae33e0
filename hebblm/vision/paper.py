"""What the paper prints on images: its numbers, read from ``paper.json`` in this folder, and its
hyper-parameters.

Its key ``images`` holds Tables "cifar-incre" (by epoch; its caption says 5, its header 10),
"cifar-online", "pretrain" and "ablation" in per cent, and "time" in seconds.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from hebblm.errors import UserError

_PRINTED: dict[str, Any] = json.loads(
    files("hebblm.vision").joinpath("paper.json").read_text("utf-8")
)
SOURCE: str = _PRINTED["source"]


PERMUTED_PAPER = {
    "ewc_lambda": "1000", "mbpa_rate": "absolute", "mbpa_lambda": "0.05", "steps": "5",
    "hebb_beta": "0.9",
    "hebb_eta": "0.2",
}  # fmt: skip
"""The paper's values (its appendix, Continual Learning)."""
_FAMILIES = {"resnet50": "ResnetV1", "densenet": "Densenet", "mobilenetv2": "MobilenetV2"}
_ADAPTED = (
    "mixture_theta", "mixture_gamma", "mbpa_lambda", "mbpa_steps", "hebb_beta", "hebb_eta"
)  # fmt: skip
_CONSTANT = "0.5"  # the paper does not print variant v3's weight
# Table "cifar_parameter": Lr, and the values of _ADAPTED.
_OPTIMA = {
    ("increment", "ResnetV1"): ("5e-4", "1", "0.1", "1e-3", "5", "0.6", "1.5"),
    ("increment", "Densenet"): ("1e-3", "1", "0.05", "1e-3", "10", "0.5", "0.5"),
    ("increment", "MobilenetV2"): ("5e-4", "1", "0.05", "1e-3", "5", "0.5", "0.5"),
    ("online", "ResnetV1"): ("1e-4", "1.0", "0.1", "1e-4", "5", "0.5", "1.5"),
    ("online", "Densenet"): ("5e-4", "0.8", "0.1", "1e-4", "5", "0.6", "1.1"),
    ("online", "MobilenetV2"): ("1e-4", "0.8", "0.05", "1e-4", "5", "0.5", "1.1"),
}


def family_of(backbone: str) -> str | None:
    """The paper's name of the network that a backbone is, or is a narrow variant of; None for
    others.
    """
    for stem, name in _FAMILIES.items():
        if backbone.startswith(stem):
            return name
    return None


def paper_values(backbone: str, experiment: str) -> dict[str, str]:
    """The paper's optimum (its Table "cifar_parameter") by the names of the settings.

    It has one for the incremental experiment and one for all others.
    """
    family = family_of(backbone)
    if family is None:
        raise UserError(
            f"the paper has no hyper-parameters for backbone {backbone!r}; use "
            "hyperparameters=tuned"
        )
    section = "online"
    values = {"online.steps": "1"}
    if experiment == "incremental":
        section = "increment"
        values = {"increment.schedule": "constant"}
    optimum = _OPTIMA[section, family]
    values |= {
        f"{section}.optimizer": "rmsprop",
        f"{section}.lr": optimum[0],
        f"{section}.head": "1",
        f"{section}.warm_up": "0",
        f"{section}.new_rows": "pretrained",
        f"{section}.norms": "batch",
        "adaptation.mbpa_optimizer": "rmsprop",
        "adaptation.best_lr": "0.15",
        "adaptation.hebb_constant": _CONSTANT,
    }
    for name, value in zip(_ADAPTED, optimum[1:], strict=True):
        values[f"adaptation.{name}"] = value
    return values


def image(*keys: str | None) -> Any:
    """Return the paper's number under nested keys, such as ``online``, ``ResnetV1``, ``new``,
    ``hebb``.
    """
    value: Any = _PRINTED["images"]
    for key in keys:
        if key not in value:
            return None
        value = value[key]
    return value
