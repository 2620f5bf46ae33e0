"""Settings of the image experiments, each with its type and bounds; nothing here loads torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args

import msgspec

from hebblm.adapt.settings import (
    Count,
    Decay,
    Fraction,
    NonNegative,
    Positive,
    changed,
    check_types,
)
from hebblm.errors import UserError
from hebblm.runtime.spelling import unknown

Experiment = Literal[
    "permuted-mnist", "incremental", "online", "pretrain-classes", "sensitivity", "timing",
    "ablation"
]  # fmt: skip
PERMUTED_MNIST: Experiment = "permuted-mnist"
Scale = Literal["smoke", "small", "paper"]
Anchor = Literal["latest", "separate"]
FisherKind = Literal["labels", "predictions"]
Rate = Literal["relative", "absolute"]
"""Whether a learning rate is in units of 1 / the query's own curvature, or the paper's lambda as it
stands.
"""
Precision = Literal["auto", "float32", "bfloat16"]
Backbone = Literal[
    "resnet50", "densenet121", "mobilenetv2", "resnet50-w16", "densenet40-k12", "mobilenetv2-x0.5",
    "cnn2-w16"
]  # fmt: skip
BACKBONES: tuple[str, ...] = get_args(Backbone)

Batch = Annotated[int, msgspec.Meta(ge=2)]  # the norm of a layer needs two pictures
Whole = Annotated[int, msgspec.Meta(ge=0)]


class Settings:
    """Base class of frozen dataclasses whose values are changed by name, and checked by their
    types.

    A tuple is a grid of a hyper-parameter to choose from; the best on held-out pictures is taken.
    """

    _repeats = False  # whether a tuple may have a value twice

    def __post_init__(self) -> None:
        check_types(self)
        for field_ in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field_.name)
            if not isinstance(value, tuple):
                continue
            twice = len(set(value)) < len(value)
            if not value or (twice and not self._repeats):
                raise UserError(
                    f"{field_.name} = {value} must have at least one value, each value once"
                )

    def changed(self, values: Mapping[str, Any]) -> Self:
        """A copy with some values replaced.

        Args:
            values: text or value by name, ``section.field`` for a field of a section; several
                values of a text are separated by commas.
        """
        known = _names(self)
        # a section at once, since some values only go together
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name not in known:
                raise unknown("setting", name, known, f"known are {', '.join(known)}")
            section, _, key = name.rpartition(".")
            changes.setdefault(section, {})[key] = value
        whole = changes.pop("", {})
        for section, new in changes.items():
            whole[section] = changed(section, getattr(self, section), new)
        return changed("", self, whole)


def _names(settings: Settings) -> list[str]:
    """Return the names of all values, those of a section after its own."""
    names = []
    for field_ in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field_.name)
        if isinstance(value, Settings):
            names += [f"{field_.name}.{name}" for name in _names(value)]
        else:
            names.append(field_.name)
    return names


@dataclass(frozen=True)
class PermutedSettings(Settings):
    """A run of permuted MNIST."""

    tasks: Count = 20  # permutations learnt one after the other
    train_samples: Count = 10_000  # of a task
    test_samples: Count = 10_000  # of each task, tested after the last task
    # Tested after each earlier task; the curve, forgetting and backward transfer are measured on
    # these alone.
    curve_samples: Count = 1_000
    held_out: Count = 1_000  # training samples that no task trains on and tuning evaluates on
    hidden: Count = 1_000
    epochs: Count = 100
    batch_size: Count = 128
    lr: Positive = 1e-3  # of Adam
    # samples kept of each task; MbPA and Hebb run once with each
    stored: tuple[Count, ...] = (250, 500)
    k: Count = 200  # neighbours a query
    steps: Count = 5  # of MbPA
    eps: Positive = 1e-3  # in the closeness 1 / (eps + squared distance)
    fisher: FisherKind = "predictions"  # where EWC takes the classes from
    # EWC's penalty pulls to the weights after the last task, or to those after each. With the
    # latter, tasks in the middle of a long chain are forgotten, and EWC is no better than training
    # without it.
    ewc_anchor: Anchor = "latest"
    ewc_lambda: tuple[NonNegative, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)
    # what mbpa_lambda is in units of; relative fits networks and memories of any size
    mbpa_rate: Rate = "relative"
    mbpa_lambda: tuple[NonNegative, ...] = (4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0)
    hebb_beta: tuple[Decay, ...] = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
    hebb_eta: tuple[NonNegative, ...] = (
        0.02,
        0.2,
        1.0,
        2.0,
        5.0,
        20.0,
        50.0,
        200.0,
        1000.0,
        5000.0,
        20000.0,
    )
    # How many tasks tuning learns. The best ewc_lambda falls with their number: penalties add up,
    # and one that suits few tasks leaves later ones no room.
    tune_tasks: Count = 20
    # held-out samples a task on which MbPA and Hebb are tuned; EWC is on all of them
    tune_samples: Count = 200

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        limits = [("stored", "train_samples"), ("curve_samples", "test_samples")]
        if self.tuned:
            limits += [("tune_tasks", "tasks"), ("tune_samples", "held_out")]
        for name, limit in limits:
            value = max(self.stored) if name == "stored" else getattr(self, name)
            if value > getattr(self, limit):
                raise UserError(
                    f"{name} = {value} is more than {limit} = {getattr(self, limit)}; lower it"
                )

    def tested(self, task: int) -> int:
        """How many samples of each task so far are tested after ``task``, counted from 0."""
        return self.test_samples if task == self.tasks - 1 else self.curve_samples

    @property
    def tuned(self) -> bool:
        return any(
            len(grid) > 1
            for grid in (self.ewc_lambda, self.mbpa_lambda, self.hebb_beta, self.hebb_eta)
        )

    def first(self) -> dict[str, dict[str, float]]:
        values = {"ewc": {"lambda": self.ewc_lambda[0]}}
        for size in self.stored:
            values[f"mbpa-{size}"] = {"lr": self.mbpa_lambda[0]}
            values[f"hebb-{size}"] = {"beta": self.hebb_beta[0], "eta": self.hebb_eta[0]}
        return values


@dataclass(frozen=True)
class PretrainingSettings(Settings):
    """Training of a backbone and its head on the old classes: SGD over cropped and flipped
    pictures.
    """

    epochs: tuple[Count, ...] = (150, 100, 100)  # by phase
    lr: tuple[Positive, ...] = (0.1, 0.01, 0.001)  # by phase
    # steps keeps each phase's rate; onecycle has one phase, whose rate rises for a quarter of the
    # steps to lr and falls to zero along a cosine.
    schedule: Literal["steps", "onecycle"] = "steps"
    batch_size: Batch = 128
    momentum: Decay = 0.9
    weight_decay: NonNegative = 5e-4  # on every parameter
    # black pixels around a picture before it is cropped again
    padding: Whole = 4
    flip: bool = True  # half of the pictures are mirrored

    _repeats = True  # a value of one phase may be that of another

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if len(self.epochs) != len(self.lr):
            raise UserError(
                f"pretraining.epochs = {self.epochs} and pretraining.lr = {self.lr} must have "
                "equally many values"
            )
        if self.schedule == "onecycle" and len(self.epochs) > 1:
            raise UserError(
                f"pretraining.epochs = {self.epochs} must be one value with schedule=onecycle"
            )


@dataclass(frozen=True)
class LearningSettings(Settings):
    """How a pre-trained network goes on learning; the defaults are the paper's.

    Its numbers are chosen by its own accuracy over all classes in the end, before any method.
    """

    optimizer: Literal["rmsprop", "sgd"] = "rmsprop"
    momentum: Decay = 0.9  # of sgd
    lr: tuple[NonNegative, ...] = (5e-5, 1e-4, 5e-4, 1e-3)  # the peak of onecycle
    head: tuple[Positive, ...] = (1.0,)  # rate of the head, in rates of the backbone
    # Steps in which the rate rises evenly. RMSprop's first step is ten times its rate in every
    # weight, and about a hundred steps pass until it is the rate itself.
    warm_up: Whole = 0
    # Rows of the new classes in the head before the first step: as pre-training left them, where
    # they never were the answer, or the mean of the old classes' rows.
    new_rows: Literal["pretrained", "mean"] = "pretrained"
    # batch: norms use and gather the statistics of each batch; frozen: those of pre-training stay.
    norms: Literal["batch", "frozen"] = "batch"

    @property
    def network(self) -> dict[str, tuple[float, ...]]:
        """The values to choose from for the network, by name."""
        return {"lr": self.lr, "head": self.head}


@dataclass(frozen=True)
class IncrementSettings(LearningSettings):
    """A small set of all classes on which the whole network is fine-tuned.

    The paper calls the set small and does not say how small. With 50 pictures a class an epoch has
    39 steps, which is of the order that its 2 % on new classes after one epoch asks for; with all
    500 it would be ten times as many.
    """

    samples: Count = 50  # a class
    # one run each; half of the new classes have so many times fewer pictures
    ratios: tuple[Count, ...] = (1, 2, 5)
    epochs: Count = 10
    reported: tuple[Count, ...] = (1, 3, 10)  # the epochs of the table
    batch_size: Batch = 128
    # constant keeps the rate; onecycle lets it rise for a quarter of all steps, and fall to zero
    # along a cosine.
    schedule: Literal["constant", "onecycle"] = "constant"
    chosen_on: Count = 10_000  # held-out pictures on which values are chosen, after the last epoch
    tested: Count = 10_000  # test pictures that every method predicts after a reported epoch
    curve_tested: Whole = 1_000  # of them, after any other; 0 for none

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if max(self.reported) > self.epochs:
            raise UserError(
                f"increment.reported = {self.reported} is beyond increment.epochs = {self.epochs}; "
                "lower it"
            )
        if self.epochs not in self.reported:
            raise UserError(
                f"increment.reported = {self.reported} must have the last epoch, {self.epochs}; "
                "add it"
            )
        if self.schedule == "onecycle" and self.warm_up:
            raise UserError(
                f"increment.warm_up = {self.warm_up} has no use with increment.schedule=onecycle, "
                "whose rate rises by itself; set increment.warm_up=0"
            )
        if self.samples < max(self.ratios):
            raise UserError(
                f"increment.samples = {self.samples} leaves no picture at a ratio of "
                f"{max(self.ratios)}:1; raise it"
            )

    def tested_after(self, epoch: int) -> int:
        """How many test pictures are predicted after an epoch, counted from 1."""
        return self.tested if epoch in self.reported else min(self.tested, self.curve_tested)


@dataclass(frozen=True)
class OnlineSettings(LearningSettings):
    """A stream of pictures of all classes: predict some, score them, learn from them."""

    interval: Batch = 100  # pictures predicted between two updates of network and memory
    # Steps of the network an interval: the first on the interval's pictures, each other on a batch
    # drawn from all pictures of the stream that are scored by then.
    steps: tuple[Count, ...] = (1,)
    batch_size: Batch = 128  # of the drawn ones
    # Intervals after which all keys are computed anew by the network as it is then; 0 for never:
    # a key stays as it was computed when its picture was predicted.
    rebuilt: Whole = 0
    chosen_on: Count = 10_000  # held-out pictures of the stream on which values are chosen
    streamed: Count = 10_000  # test pictures in the stream

    @property
    def network(self) -> dict[str, tuple[float, ...]]:
        return {"lr": self.lr, "head": self.head, "steps": self.steps}


@dataclass(frozen=True)
class AdaptationSettings(Settings):
    """Hyper-parameters of the methods; the grids hold the paper's values and go beyond them, for
    every method alike.
    """

    k: Count = 200  # neighbours a query
    eps: Positive = 1e-3  # in the closeness 1 / (eps + squared distance)
    mixture_theta: tuple[NonNegative, ...] = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
    mixture_gamma: tuple[Fraction, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    # newton goes to the optimum of the neighbours' loss with a pull; rmsprop is the paper's, with a
    # fresh state for each query, whose rate is quartered until that loss does not rise.
    mbpa_optimizer: Literal["newton", "rmsprop"] = "newton"
    mbpa_lambda: tuple[NonNegative, ...] = (1e-4, 1e-3, 1e-2)  # of rmsprop
    mbpa_steps: tuple[Count, ...] = (1, 5, 10)  # of rmsprop
    mbpa_l2_to_base: tuple[Positive, ...] = (
        1e-5,
        3e-5,
        1e-4,
        3e-4,
        1e-3,
        3e-3,
        1e-2,
        3e-2,
    )  # of newton
    hebb_beta: tuple[Decay, ...] = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    hebb_eta: tuple[NonNegative, ...] = (0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
    hebb_constant: tuple[Fraction, ...] = (0.2, 0.4, 0.6, 0.8)  # the weight in variant v3
    best_lr: tuple[NonNegative, ...] = (0.05, 0.15, 0.5)  # of the gate that mixes the methods
    rings: tuple[Count, ...] = (250, 500)  # capacities of the memories of Hebb-N


@dataclass(frozen=True)
class SensitivitySettings(Settings):
    """The grid of the heat map (the paper's Fig. hyper); each point is read from one adaptation
    pass.
    """

    beta: tuple[Decay, ...] = (0.4, 0.5, 0.6, 0.7, 0.8)
    eta: tuple[NonNegative, ...] = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5)


@dataclass(frozen=True)
class TimingSettings(Settings):
    """Comparison of computation time."""

    rounds: Count = 5  # each runs every method once, in turn
    samples: Count = 10_000  # pictures of a run


@dataclass(frozen=True)
class ClassSettings(Settings):
    """A run of an experiment on new classes."""

    backbone: Backbone = "resnet50"
    old_classes: Count = 50  # that the network is pre-trained on
    # the numbers of old classes that pretrain-classes compares
    varied: tuple[Count, ...] = (30, 50, 70)
    # own splits the classes and pre-trains for each seed; shared does so once, and the seeds draw
    # other samples and orders.
    pretrainings: Literal["own", "shared"] = "own"
    # Of the backbone's convolutions: bfloat16 is twice as fast on processors that have it, and slow
    # on others; auto is bfloat16 on a GPU.
    precision: Precision = "auto"
    # training pictures of each class that nothing is trained on; tuning is done on them
    held_out: Count = 50
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    increment: IncrementSettings = field(default_factory=IncrementSettings)
    # of all experiments but the incremental one
    online: OnlineSettings = field(default_factory=OnlineSettings)
    adaptation: AdaptationSettings = field(default_factory=AdaptationSettings)
    sensitivity: SensitivitySettings = field(default_factory=SensitivitySettings)
    timing: TimingSettings = field(default_factory=TimingSettings)
