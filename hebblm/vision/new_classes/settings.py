"""Settings of the experiments on new classes, their three scales, and the paper's hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hebblm.adapt import checks
from hebblm.errors import UserError
from hebblm.vision.backbones.names import check_backbone
from hebblm.vision.settings import Scale, Settings, grid

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class PretrainingSettings:
    """Training of a backbone and its head on the old classes: SGD over cropped and flipped pictures.

    Args:
        epochs: passes over the pictures, phase by phase.
        lr: learning rate of each phase.
        schedule: steps keeps each phase's rate; onecycle has one phase, whose rate rises for a quarter of the steps to
            ``lr`` and falls to zero along a cosine.
        batch_size: pictures a step.
        momentum: of SGD.
        weight_decay: of SGD, on every parameter.
        padding: black pixels around a picture before it is cropped to its size again.
        flip: whether half of the pictures are mirrored.
    """

    epochs: tuple[int, ...] = (150, 100, 100)
    lr: tuple[float, ...] = (0.1, 0.01, 0.001)
    schedule: Literal["steps", "onecycle"] = "steps"
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if len(self.epochs) != len(self.lr):
            raise UserError(f"pretraining.epochs = {self.epochs} and pretraining.lr = {self.lr} must be as many values")
        if self.schedule == "onecycle" and len(self.epochs) > 1:
            raise UserError(f"pretraining.epochs = {self.epochs} must be one value with schedule=onecycle")
        for epochs, lr in zip(self.epochs, self.lr, strict=True):
            checks.at_least("pretraining.epochs", epochs, 1)
            checks.above_zero("pretraining.lr", lr)
        checks.at_least("pretraining.batch_size", self.batch_size, 2)
        checks.decay("pretraining.momentum", self.momentum)
        checks.at_least("pretraining.weight_decay", self.weight_decay, 0)
        checks.at_least("pretraining.padding", self.padding, 0)


@dataclass(frozen=True, slots=True)
class IncrementSettings:
    """A small set of all classes on which the whole network is fine-tuned by RMSprop.

    The paper calls the set small and does not say how small. With 50 pictures a class an epoch has 39 steps, which is
    of the order that its 2 % on new classes after one epoch asks for; with all 500 it would be ten times as many.

    Args:
        samples: pictures a class.
        ratios: one run each; half of the new classes have so many times fewer pictures.
        epochs: passes over the set; every method is tested after each.
        reported: the epochs of the table, and those that tuning looks at.
        batch_size: pictures a step.
        lr: of RMSprop.
        tested: test pictures, drawn at random, that every method predicts after each epoch.
    """

    samples: int = 50
    ratios: tuple[int, ...] = (1, 2, 5)
    epochs: int = 10
    reported: tuple[int, ...] = (1, 3, 10)
    batch_size: int = 128
    lr: tuple[float, ...] = (5e-5, 1e-4, 5e-4, 1e-3)
    tested: int = 10_000

    def __post_init__(self) -> None:
        checks.at_least("increment.tested", self.tested, 1)
        grid("increment.ratios", self.ratios, 1)
        grid("increment.reported", self.reported, 1)
        grid("increment.lr", self.lr, 0)
        checks.at_least("increment.epochs", self.epochs, 1)
        checks.at_least("increment.batch_size", self.batch_size, 2)
        if max(self.reported) > self.epochs:
            raise UserError(
                f"increment.reported = {self.reported} is beyond increment.epochs = {self.epochs}; lower it"
            )
        if self.samples < max(self.ratios):
            raise UserError(
                f"increment.samples = {self.samples} leaves no picture at a ratio of {max(self.ratios)}:1; raise it"
            )


@dataclass(frozen=True, slots=True)
class OnlineSettings:
    """A stream of pictures of all classes: predict some, score them, learn from them.

    Args:
        interval: pictures predicted between two updates of network and memory.
        lr: of RMSprop, one step an interval.
        streamed: test pictures in the stream, drawn at random.
    """

    interval: int = 100
    lr: tuple[float, ...] = (5e-5, 1e-4, 5e-4, 1e-3)
    streamed: int = 10_000

    def __post_init__(self) -> None:
        checks.at_least("online.interval", self.interval, 2)
        checks.at_least("online.streamed", self.streamed, 1)
        grid("online.lr", self.lr, 0)


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """Hyper-parameters of the methods. Where several values stand, the best on held-out pictures is taken.

    The grids hold the paper's and go beyond them, for every method alike.

    Args:
        k: neighbours a query.
        eps: constant in the closeness 1 / (eps + squared distance).
        mixture_theta: sharpness of Mixture.
        mixture_gamma: share of the memory in Mixture.
        mbpa_optimizer: of MbPA, and of Hebb over it: newton, to the optimum of the neighbours' loss with a pull; or
            rmsprop, the paper's, with a fresh state for each query, whose rate is quartered until that loss does not
            rise.
        mbpa_lambda: learning rate of rmsprop.
        mbpa_steps: its steps.
        mbpa_pull: pull of newton back to the network's own head.
        hebb_beta: decay of the Hebbian term's weight.
        hebb_eta: scale of the Hebbian term.
        hebb_constant: the weight in variant v3.
        rings: capacities of the memories of Hebb-N.
    """

    k: int = 200
    eps: float = 1e-3
    mixture_theta: tuple[float, ...] = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
    mixture_gamma: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    mbpa_optimizer: Literal["newton", "rmsprop"] = "newton"
    mbpa_lambda: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    mbpa_steps: tuple[int, ...] = (1, 5, 10)
    mbpa_pull: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    hebb_beta: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    hebb_eta: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
    hebb_constant: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
    rings: tuple[int, ...] = (250, 500)

    def __post_init__(self) -> None:
        checks.at_least("adaptation.k", self.k, 1)
        checks.above_zero("adaptation.eps", self.eps)
        checks.one_of("adaptation.mbpa_optimizer", self.mbpa_optimizer, ("newton", "rmsprop"))
        for name in ("mixture_theta", "mbpa_lambda", "hebb_eta"):
            grid(f"adaptation.{name}", getattr(self, name), 0)
        grid("adaptation.mbpa_steps", self.mbpa_steps, 1)
        grid("adaptation.mbpa_pull", self.mbpa_pull, 0, checks.above_zero)
        grid("adaptation.rings", self.rings, 1)
        for name in ("mixture_gamma", "hebb_constant"):
            grid(f"adaptation.{name}", getattr(self, name), 0, checks.share)
        grid("adaptation.hebb_beta", self.hebb_beta, 0, checks.decay)


@dataclass(frozen=True, slots=True)
class SensitivitySettings:
    """The grid of the heat map (the paper's Fig. hyper); each point is read from one adaptation pass.

    Args:
        beta: decay of the Hebbian term's weight.
        eta: scale of the Hebbian term.
    """

    beta: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7, 0.8)
    eta: tuple[float, ...] = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5)

    def __post_init__(self) -> None:
        grid("sensitivity.beta", self.beta, 0, checks.decay)
        grid("sensitivity.eta", self.eta, 0)


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """Comparison of computation time.

    Args:
        rounds: each runs every method once, in turn.
        samples: pictures of a run.
    """

    rounds: int = 5
    samples: int = 10_000

    def __post_init__(self) -> None:
        checks.at_least("timing.rounds", self.rounds, 1)
        checks.at_least("timing.samples", self.samples, 1)


@dataclass(frozen=True, slots=True)
class ClassSettings(Settings):
    """A run of an experiment on new classes.

    Args:
        backbone: name of the network.
        old_classes: how many classes the network is pre-trained on.
        varied: the numbers of old classes that pretrain-classes compares.
        pretrainings: own splits the classes and pre-trains anew for each seed; shared does so once, and the seeds
            draw other samples and orders.
        precision: of the backbone's convolutions: float32, bfloat16 (twice as fast on processors that have it, slow on
            others) or auto, bfloat16 on a GPU.
        held_out: pictures of each class, of the training part, that nothing is trained on; tuning is done on them.
        pretraining: of the backbone.
        increment: of the incremental experiment.
        online: of all others.
        adaptation: of the methods.
        sensitivity: of the heat map.
        timing: of the comparison of times.
    """

    backbone: str = "resnet50"
    old_classes: int = 50
    varied: tuple[int, ...] = (30, 50, 70)
    pretrainings: Literal["own", "shared"] = "own"
    precision: Precision = "auto"
    held_out: int = 50
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    increment: IncrementSettings = field(default_factory=IncrementSettings)
    online: OnlineSettings = field(default_factory=OnlineSettings)
    adaptation: AdaptationSettings = field(default_factory=AdaptationSettings)
    sensitivity: SensitivitySettings = field(default_factory=SensitivitySettings)
    timing: TimingSettings = field(default_factory=TimingSettings)

    def __post_init__(self) -> None:
        check_backbone(self.backbone)
        checks.at_least("old_classes", self.old_classes, 1)
        grid("varied", self.varied, 1)
        checks.at_least("held_out", self.held_out, 1)


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
            mbpa_pull=(1e-3, 1e-2),
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
}
"""``smoke``: seconds on scikit-learn's digits. ``small``: an evening for all experiments on two CPU cores; the network
for 50 classes ships, another takes 20 to 25 minutes; one cycle of the learning rate, because 15 epochs are too few for
the paper's phases. ``paper``: its sizes, for a GPU."""

_FAMILIES = {"resnet50": "ResnetV1", "densenet": "Densenet", "mobilenetv2": "MobilenetV2"}
_ADAPTED = (
    "mixture_theta", "mixture_gamma", "mbpa_lambda", "mbpa_steps", "hebb_beta", "hebb_eta", "hebb_constant",
)  # fmt: skip
# Table "cifar_parameter": Lr, and the values of _ADAPTED but the last.
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
        raise UserError(f"the paper has no hyper-parameters for backbone {backbone!r}; use --hyperparameters tuned")
    section = "increment" if experiment == "incremental" else "online"
    lr, *values = _OPTIMA[section, family]
    own = zip(_ADAPTED, (*values, CONSTANT), strict=True)
    rmsprop = {"adaptation.mbpa_optimizer": "rmsprop"}
    return {f"{section}.lr": lr, **rmsprop, **{f"adaptation.{name}": value for name, value in own}}
