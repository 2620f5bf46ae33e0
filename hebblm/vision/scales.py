"""Settings of the image experiments as they are chosen: three scales, the paper's values, a user's
changes; nothing here loads torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hebblm.errors import UserError
from hebblm.vision.paper import PERMUTED_PAPER, paper_values
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
        tasks=3, train_samples=400, test_samples=200, curve_samples=100, held_out=100, hidden=64,
        epochs=20,
        batch_size=32, lr=3e-3, stored=(25, 50), k=20, ewc_lambda=(10.0, 100.0, 1e3), tune_tasks=3,
        tune_samples=50,
    ),
    "small": PermutedSettings(
        test_samples=500, curve_samples=100, epochs=5, ewc_lambda=(1.0, 10.0, 100.0, 1e3),
        tune_samples=100
    ),
    "paper": PermutedSettings(),
}  # fmt: skip
"""Seconds on the digits of scikit-learn; under an hour for three seeds on two CPU cores; the
paper's sizes on a GPU.
"""

CLASS_SCALES: dict[Scale, ClassSettings] = {
    "smoke": ClassSettings(
        backbone="cnn2-w16", old_classes=5, varied=(3, 5, 7), pretrainings="shared", held_out=10,
        pretraining=PretrainingSettings(
            epochs=(6,), lr=(0.1,), schedule="onecycle", batch_size=32, padding=1, flip=False
        ),
        increment=IncrementSettings(
            optimizer="sgd", new_rows="mean", schedule="onecycle", samples=10, ratios=(1, 2),
            epochs=3, reported=(1, 3), batch_size=32, lr=(1e-2, 1e-1), chosen_on=100, tested=100,
            curve_tested=50
        ),
        online=OnlineSettings(
            optimizer="sgd", new_rows="mean", interval=20, lr=(1e-2, 3e-2), steps=(3,),
            batch_size=32, chosen_on=100, streamed=200
        ),
        adaptation=AdaptationSettings(
            k=20, mixture_theta=(0.1, 1.0), mixture_gamma=(0.1, 0.3), mbpa_lambda=(1e-3, 1e-2),
            mbpa_steps=(3,),
            mbpa_l2_to_base=(1e-3, 1e-2), hebb_beta=(0.5, 0.8), hebb_eta=(0.1, 0.5, 1.5),
            hebb_constant=(0.3, 0.6),
            rings=(25, 50),
        ),
        timing=TimingSettings(rounds=2, samples=100),
    ),
    "small": ClassSettings(
        backbone="resnet50-w16",
        pretrainings="shared",
        held_out=100,  # as many pictures as the test's
        # The fastest of the narrow networks where there is bfloat16; without it, use fewer epochs
        # or float32.
        precision="bfloat16",
        pretraining=PretrainingSettings(epochs=(15,), lr=(0.1,), schedule="onecycle"),
        increment=IncrementSettings(
            optimizer="sgd", new_rows="mean", schedule="onecycle", samples=25,
            lr=(0.01, 0.02, 0.05, 0.1),
        ),
        # A slow regime, which keeps old classes; ten steps at 0.03 learn more new ones.
        online=OnlineSettings(
            optimizer="sgd", new_rows="mean", lr=(0.003, 0.01, 0.03), steps=(5,)
        ),
        # In narrower grids of the methods best values lay at an end.
        adaptation=AdaptationSettings(
            mixture_theta=(0.0003, 0.001, 0.003, 0.01, 0.05, 0.1, 0.2, 0.4, 1.0),
            mixture_gamma=(0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0),
            mbpa_lambda=(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0),
            mbpa_steps=(5,),
            hebb_beta=(0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 0.99, 0.998, 0.9995),
            hebb_eta=(0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0),
            hebb_constant=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6),
        ),
        # The paper's and two more.
        sensitivity=SensitivitySettings(eta=(0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 3.0, 6.0)),
        timing=TimingSettings(samples=1_000),
    ),
    "paper": ClassSettings(),
}  # fmt: skip
"""``smoke``: seconds on scikit-learn's digits. ``small``: an evening for all experiments on two CPU
cores; the network for 50 classes ships, another takes 20 to 25 minutes; one cycle of the learning
rate, because 15 epochs are too few for the paper's phases. ``paper``: its sizes, for a GPU.
"""


def settings_of(
    experiment: str, scale: Scale, backbone: str | None, changes: Mapping[str, str], *, paper: bool
) -> PermutedSettings | ClassSettings:
    """The settings of an experiment: those of a scale, with a backbone, the paper's values and own
    changes.
    """
    given = list(changes)
    if experiment == PERMUTED_MNIST:
        if backbone is not None:
            raise UserError(
                f"{experiment} has one network and takes no `backbone`, not {backbone!r}"
            )
        permuted = PERMUTED_SCALES[scale]
        if paper:
            return permuted.changed({**PERMUTED_PAPER, **changes})
        return permuted.changed(changes)
    settings = CLASS_SCALES[scale]
    backbone = changes.get("backbone", backbone)
    if backbone is not None:
        settings = settings.changed({"backbone": backbone})
    if paper:
        changes = {**paper_values(settings.backbone, experiment), **changes}
    settings = settings.changed(changes)
    _check_optimizer(settings, given)
    return settings


def _check_optimizer(settings: ClassSettings, names: Collection[str]) -> None:
    """Refuse values, set by name, that MbPA's optimizer does not use."""
    optimizer = settings.adaptation.mbpa_optimizer
    belongs = {"mbpa_l2_to_base": "newton", "mbpa_lambda": "rmsprop", "mbpa_steps": "rmsprop"}
    for name, other in belongs.items():
        if f"adaptation.{name}" in names and other != optimizer:
            raise UserError(
                f"adaptation.{name} belongs to {other}, but MbPA uses {optimizer}; leave it out, "
                f"or set adaptation.mbpa_optimizer={other}"
            )
