"""The three scales of the image experiments, the paper's values, and the settings that a command asks for."""

from __future__ import annotations

from collections.abc import Mapping

from hebblm.errors import UserError
from hebblm.vision.settings import (
    PERMUTED_MNIST,
    AdaptationSettings,
    ClassSettings,
    IncrementSettings,
    OnlineSettings,
    PermutedSettings,
    PretrainingSettings,
    Scale,
    SensitivitySettings,
    TimingSettings,
)

PERMUTED_SCALES: dict[Scale, PermutedSettings] = {
    "smoke": PermutedSettings(
        tasks=3, train_samples=400, test_samples=200, curve_samples=100, held_out=100, hidden=64, epochs=20,
        batch_size=32, lr=3e-3, stored=(25, 50), k=20, ewc_lambda=(10.0, 100.0, 1e3), tune_tasks=3, tune_samples=50,
    ),
    "small": PermutedSettings(
        test_samples=500, curve_samples=100, epochs=5, ewc_lambda=(1.0, 10.0, 100.0, 1e3), tune_samples=100
    ),
    "paper": PermutedSettings(),
}  # fmt: skip
"""Seconds on the digits of scikit-learn; under an hour for three seeds on two CPU cores; the paper's sizes on a GPU."""

CLASS_SCALES: dict[Scale, ClassSettings] = {
    "smoke": ClassSettings(
        backbone="cnn2-w16", old_classes=5, varied=(3, 5, 7), pretrainings="shared", held_out=10,
        pretraining=PretrainingSettings(
            epochs=(6,), lr=(0.1,), schedule="onecycle", batch_size=32, padding=1, flip=False
        ),
        increment=IncrementSettings(
            samples=10, ratios=(1, 2), epochs=3, reported=(1, 3), batch_size=32, lr=(1e-3, 1e-2), tested=100
        ),
        online=OnlineSettings(interval=20, lr=(1e-3, 1e-2), streamed=200),
        adaptation=AdaptationSettings(
            k=20, mixture_theta=(0.1, 1.0), mixture_gamma=(0.1, 0.3), mbpa_lambda=(1e-3, 1e-2), mbpa_steps=(3,),
            mbpa_pull=(1e-3, 1e-2), hebb_beta=(0.5, 0.8), hebb_eta=(0.1, 0.5, 1.5), hebb_constant=(0.3, 0.6),
            rings=(25, 50),
        ),
        timing=TimingSettings(rounds=2, samples=100),
    ),
    "small": ClassSettings(
        backbone="resnet50-w16",
        pretrainings="shared",
        held_out=100,  # as many pictures as the test's
        # The fastest of the narrow networks where there is bfloat16; without it, use fewer epochs or float32.
        precision="bfloat16",
        pretraining=PretrainingSettings(epochs=(15,), lr=(0.1,), schedule="onecycle"),
        increment=IncrementSettings(samples=25, lr=(1e-6, 1e-5, 3e-5, 1e-4, 5e-4, 1e-3, 3e-3), tested=1_000),
        # From nearly standing still to rates at which it forgets all. In narrower grids of the methods best values lay
        # at an end.
        online=OnlineSettings(lr=(1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
        adaptation=AdaptationSettings(
            mixture_theta=(0.0003, 0.001, 0.003, 0.01, 0.05, 0.1, 0.2, 0.4, 1.0),
            mixture_gamma=(0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0),
            mbpa_lambda=(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0),
            mbpa_steps=(5,),
            hebb_beta=(0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 0.99, 0.998, 0.9995),
            hebb_eta=(0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0),
            hebb_constant=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6),
        ),
        # The paper's and two more: over a network that alone learns no new class, the paper's change next to nothing.
        sensitivity=SensitivitySettings(eta=(0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 3.0, 6.0)),
        timing=TimingSettings(samples=1_000),
    ),
    "paper": ClassSettings(),
}  # fmt: skip
"""``smoke``: seconds on scikit-learn's digits. ``small``: an evening for all experiments on two CPU cores; the network
for 50 classes ships, another takes 20 to 25 minutes; one cycle of the learning rate, because 15 epochs are too few for
the paper's phases. ``paper``: its sizes, for a GPU."""

PERMUTED_PAPER = {
    "ewc_lambda": "1000", "mbpa_rate": "absolute", "mbpa_lambda": "0.05", "steps": "5", "hebb_beta": "0.9",
    "hebb_eta": "0.2",
}  # fmt: skip
"""The paper's values (its appendix, Continual Learning)."""
_FAMILIES = {"resnet50": "ResnetV1", "densenet": "Densenet", "mobilenetv2": "MobilenetV2"}
_ADAPTED = (
    "mixture_theta", "mixture_gamma", "mbpa_lambda", "mbpa_steps", "hebb_beta", "hebb_eta", "hebb_constant",
)  # fmt: skip
_CONSTANT = "0.5"  # the paper does not print variant v3's weight
# Table "cifar_parameter": Lr, and the values of _ADAPTED but the last.
_OPTIMA = {
    ("increment", "ResnetV1"): ("5e-4", "1", "0.1", "1e-3", "5", "0.6", "1.5"),
    ("increment", "Densenet"): ("1e-3", "1", "0.05", "1e-3", "10", "0.5", "0.5"),
    ("increment", "MobilenetV2"): ("5e-4", "1", "0.05", "1e-3", "5", "0.5", "0.5"),
    ("online", "ResnetV1"): ("1e-4", "1.0", "0.1", "1e-4", "5", "0.5", "1.5"),
    ("online", "Densenet"): ("5e-4", "0.8", "0.1", "1e-4", "5", "0.6", "1.1"),
    ("online", "MobilenetV2"): ("1e-4", "0.8", "0.05", "1e-4", "5", "0.5", "1.1"),
}


def family_of(backbone: str) -> str | None:
    """The paper's name of the network that a backbone is, or is a narrow variant of; None for others."""
    return next((name for stem, name in _FAMILIES.items() if backbone.startswith(stem)), None)


def paper_values(backbone: str, experiment: str) -> dict[str, str]:
    """The paper's optimum (its Table "cifar_parameter") by the names of the settings.

    It has one for the incremental experiment and one for all others.
    """
    family = family_of(backbone)
    if family is None:
        raise UserError(f"the paper has no hyper-parameters for backbone {backbone!r}; use --hyperparameters tuned")
    section = "increment" if experiment == "incremental" else "online"
    lr, *values = _OPTIMA[section, family]
    own = zip(_ADAPTED, (*values, _CONSTANT), strict=True)
    rmsprop = {"adaptation.mbpa_optimizer": "rmsprop"}
    return {f"{section}.lr": lr, **rmsprop, **{f"adaptation.{name}": value for name, value in own}}


def settings_of(
    experiment: str, scale: Scale, backbone: str | None, changes: Mapping[str, str], *, paper: bool
) -> PermutedSettings | ClassSettings:
    """The settings of an experiment: those of a scale, with a backbone, the paper's values and own changes."""
    if experiment == PERMUTED_MNIST:
        if backbone is not None:
            raise UserError(f"{experiment} has one network and takes no --backbone, not {backbone!r}")
        return PERMUTED_SCALES[scale].changed({**(PERMUTED_PAPER if paper else {}), **changes})
    backbone = changes.get("backbone", backbone)
    settings = CLASS_SCALES[scale].changed({} if backbone is None else {"backbone": backbone})
    fixed = paper_values(settings.backbone, experiment) if paper else {}
    settings = settings.changed({**fixed, **changes})
    optimizer = settings.adaptation.mbpa_optimizer
    for name, other in (("mbpa_pull", "newton"), ("mbpa_lambda", "rmsprop"), ("mbpa_steps", "rmsprop")):
        if f"adaptation.{name}" in changes and other != optimizer:
            raise UserError(
                f"adaptation.{name} is of {other}, and MbPA goes by {optimizer}; leave it out, or set "
                f"adaptation.mbpa_optimizer={other}"
            )
    return settings
