"""The three scales, and the paper's hyper-parameters."""

from __future__ import annotations

from hebblm.errors import UserError
from hebblm.vision.new_classes.settings import (
    AdaptationSettings,
    ClassSettings,
    IncrementSettings,
    OnlineSettings,
    PretrainingSettings,
    SensitivitySettings,
    TimingSettings,
)
from hebblm.vision.settings import Scale

SCALES: dict[Scale, ClassSettings] = {
    "smoke": ClassSettings(
        backbone="cnn2-w16",
        old_classes=5,
        varied=(3, 5, 7),
        pretrainings="shared",
        held_out=10,
        pretraining=PretrainingSettings(
            epochs=(6,), lr=(0.1,), schedule="onecycle", batch_size=32, padding=1, flip=False
        ),
        increment=IncrementSettings(
            samples=10, ratios=(1, 2), epochs=3, reported=(1, 3), batch_size=32, lr=(1e-3, 1e-2), tested=100
        ),
        online=OnlineSettings(interval=20, lr=(1e-3, 1e-2), streamed=200),
        adaptation=AdaptationSettings(
            k=20,
            mixture_theta=(0.1, 1.0),
            mixture_gamma=(0.1, 0.3),
            mbpa_lambda=(1e-3, 1e-2),
            mbpa_steps=(3,),
            hebb_beta=(0.5, 0.8),
            hebb_eta=(0.1, 0.5, 1.5),
            hebb_constant=(0.3, 0.6),
            rings=(25, 50),
        ),
        timing=TimingSettings(rounds=2, samples=100),
    ),
    "small": ClassSettings(
        backbone="resnet50-w16",
        pretrainings="shared",
        held_out=20,
        # The fastest of the narrow networks where there is bfloat16; without it, use fewer epochs or float32.
        precision="bfloat16",
        pretraining=PretrainingSettings(epochs=(15,), lr=(0.1,), schedule="onecycle"),
        increment=IncrementSettings(samples=25, lr=(3e-5, 1e-4, 5e-4, 2e-3), tested=1_000),
        # From nearly standing still to a rate at which it forgets all; the lower end is needed because RMSprop's first
        # steps are ten times its rate.
        online=OnlineSettings(lr=(1e-6, 1e-5, 3e-5, 1e-4, 5e-4)),
        adaptation=AdaptationSettings(
            mbpa_lambda=(1e-4, 1e-3, 1e-2, 1e-1),
            mbpa_steps=(5,),
            hebb_beta=(0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 0.99),
            hebb_eta=(0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 3.0, 6.0),
        ),
        # The paper's and two more: over a network that alone learns no new class, the paper's change next to nothing.
        sensitivity=SensitivitySettings(eta=(0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 3.0, 6.0)),
        timing=TimingSettings(samples=1_000),
    ),
    "paper": ClassSettings(),
}
"""``smoke``: seconds on scikit-learn's digits. ``small``: an evening for all experiments on two CPU cores, of which the
one pre-training is meant to take 20 to 25 minutes; one cycle of the learning rate, because 15 epochs are too few for
the paper's phases. ``paper``: its sizes, for a GPU."""

_FAMILIES = {"resnet50": "ResnetV1", "densenet": "Densenet", "mobilenetv2": "MobilenetV2"}
# Table "cifar_parameter": Lr; theta, gamma; lambda, steps; beta, eta.
_OPTIMA = {
    ("increment", "ResnetV1"): ("5e-4", "1", "0.1", "1e-3", "5", "0.6", "1.5"),
    ("increment", "Densenet"): ("1e-3", "1", "0.05", "1e-3", "10", "0.5", "0.5"),
    ("increment", "MobilenetV2"): ("5e-4", "1", "0.05", "1e-3", "5", "0.5", "0.5"),
    ("online", "ResnetV1"): ("1e-4", "1.0", "0.1", "1e-4", "5", "0.5", "1.5"),
    ("online", "Densenet"): ("5e-4", "0.8", "0.1", "1e-4", "5", "0.6", "1.1"),
    ("online", "MobilenetV2"): ("1e-4", "0.8", "0.05", "1e-4", "5", "0.5", "1.1"),
}
CONSTANT = "0.5"
"""Variant v3's weight, which the paper does not print."""


def family_of(backbone: str) -> str | None:
    """Return the paper's name of the network that a backbone is, or is a narrow variant of; None for others."""
    return next((name for stem, name in _FAMILIES.items() if backbone.startswith(stem)), None)


def paper_values(backbone: str, experiment: str) -> dict[str, str]:
    """Return the paper's optimum (its Table "cifar_parameter") by the names of the settings.

    It has one for the incremental experiment and one for all others.

    Raises:
        UserError: a backbone that the paper does not have.
    """
    family = family_of(backbone)
    if family is None:
        raise UserError(
            f"the paper has no hyper-parameters for backbone {backbone!r}; use --hyperparameters tuned"
        )
    section = "increment" if experiment == "incremental" else "online"
    lr, theta, gamma, mbpa_lr, steps, beta, eta = _OPTIMA[section, family]
    return {
        f"{section}.lr": lr,
        "adaptation.mixture_theta": theta,
        "adaptation.mixture_gamma": gamma,
        "adaptation.mbpa_lambda": mbpa_lr,
        "adaptation.mbpa_steps": steps,
        "adaptation.hebb_beta": beta,
        "adaptation.hebb_eta": eta,
        "adaptation.hebb_constant": CONSTANT,
    }
