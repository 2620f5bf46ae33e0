"""Settings of the image experiments, their three scales and the paper's values; nothing here loads torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast, get_args, get_origin, get_type_hints

import msgspec

from hebblm.adapt import checks
from hebblm.errors import UserError
from hebblm.suggest import unknown

Experiment = Literal[
    "permuted-mnist", "incremental", "online", "pretrain-classes", "sensitivity", "timing", "ablation"
]  # fmt: skip
PERMUTED_MNIST: Experiment = "permuted-mnist"
Scale = Literal["smoke", "small", "paper"]
Anchor = Literal["latest", "separate"]
FisherKind = Literal["labels", "predictions"]
Rate = Literal["relative", "absolute"]
"""Whether a learning rate is in units of 1 / the query's own curvature, or the paper's lambda as it stands."""
Precision = Literal["auto", "float32", "bfloat16"]
BACKBONES = (
    "resnet50", "densenet121", "mobilenetv2", "resnet50-w16", "densenet40-k12", "mobilenetv2-x0.5", "cnn2-w16",
)  # fmt: skip
Grid = tuple[float, ...]
"""Grid of a hyper-parameter to choose from; the best on held-out pictures is taken."""


class Settings:
    """Base class of frozen dataclasses whose values are checked, and changed by name."""

    __slots__ = ()
    section = ""  # prefix of the names in messages

    def changed(self, values: Mapping[str, str]) -> Self:
        """Return a copy with some values replaced.

        Args:
            values: text by name, ``section.field`` for a field of a section; several values are separated by commas.

        Raises:
            UserError: an unknown name, or a value of the wrong type or out of range.
        """
        known = dict(_names(self))
        found: dict[str, dict[str, Any]] = {"": {}}  # a section at once, since some values only go together
        for name, text in values.items():
            if name not in known:
                raise unknown("setting", name, known, f"known are {', '.join(known)}")
            section, _, key = name.rpartition(".")
            found.setdefault(section, {})[key] = _convert(name, text, known[name])
        own, settings = found.pop(""), cast(Any, self)
        for section, new in found.items():
            own[section] = dataclasses.replace(getattr(self, section), **new)
        return cast(Self, dataclasses.replace(settings, **own))

    def _check(self, check: Callable[[str, Any], None], *names: str) -> None:
        for name in names:
            check(f"{self.section}{name}", getattr(self, name))

    def _least(self, low: float, *names: str) -> None:
        self._check(lambda name, value: checks.at_least(name, value, low), *names)

    def _grids(self, low: float, *names: str, check: Callable[[str, float], None] | None = None) -> None:
        for name in names:
            values, full = getattr(self, name), f"{self.section}{name}"
            if not values or len(set(values)) < len(values):
                raise UserError(f"{full} = {values} must have at least one value, each once")
            for value in values:
                checks.at_least(full, value, low)
                if check is not None:
                    check(full, value)


def _names(settings: object) -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(type(settings)).items():
        if dataclasses.is_dataclass(hint):
            yield from ((f"{name}.{inner}", kind) for inner, kind in get_type_hints(hint).items())
        else:
            yield name, hint


def _convert(name: str, text: str, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return tuple(_convert(name, part, get_args(hint)[0]) for part in text.split(","))
    if get_origin(hint) is Literal:
        checks.one_of(name, text, get_args(hint))
        return text
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}={text} must be a value of type {hint.__name__}") from error


@dataclass(frozen=True, slots=True)
class PermutedSettings(Settings):
    """A run of permuted MNIST."""

    tasks: int = 20  # permutations learnt one after the other
    train_samples: int = 10_000  # of a task
    test_samples: int = 10_000  # of each task, tested after the last task
    # Tested after each earlier task; the curve, forgetting and backward transfer are measured on these alone.
    curve_samples: int = 1_000
    held_out: int = 1_000  # training samples that no task trains on and tuning evaluates on
    hidden: int = 1_000
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3  # of Adam
    stored: tuple[int, ...] = (250, 500)  # samples kept of each task; MbPA and Hebb run once with each
    k: int = 200  # neighbours a query
    steps: int = 5  # of MbPA
    eps: float = 1e-3  # in the closeness 1 / (eps + squared distance)
    fisher: FisherKind = "predictions"  # where EWC takes the classes from
    # EWC's penalty pulls to the weights after the last task, or to those after each. With the latter, tasks in the
    # middle of a long chain are forgotten, and EWC is no better than training without it.
    ewc_anchor: Anchor = "latest"
    ewc_lambda: Grid = (1.0, 10.0, 100.0, 1e3, 1e4)
    mbpa_rate: Rate = "relative"  # what mbpa_lambda is in units of; relative fits networks and memories of any size
    mbpa_lambda: Grid = (4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0)
    hebb_beta: Grid = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
    hebb_eta: Grid = (0.02, 0.2, 1.0, 2.0, 5.0, 20.0, 50.0, 200.0, 1000.0, 5000.0, 20000.0)
    # How many tasks tuning learns. The best ewc_lambda falls with their number: penalties add up, and one that suits
    # few tasks leaves later ones no room.
    tune_tasks: int = 20
    tune_samples: int = 200  # held-out samples a task on which MbPA and Hebb are tuned; EWC is on all of them

    def __post_init__(self) -> None:
        self._least(1, "tasks", "train_samples", "test_samples", "held_out", "hidden", "epochs", "batch_size")
        self._least(1, "curve_samples", "k", "steps", "tune_tasks", "tune_samples")
        self._check(checks.above_zero, "lr", "eps")
        self._grids(1, "stored")
        self._grids(0, "ewc_lambda", "mbpa_lambda", "hebb_eta")
        self._grids(0, "hebb_beta", check=checks.decay)
        limits = [("stored", "train_samples"), ("curve_samples", "test_samples")]
        limits += [("tune_tasks", "tasks"), ("tune_samples", "held_out")] if self.tuned else []
        for name, limit in limits:
            value = max(self.stored) if name == "stored" else getattr(self, name)
            if value > getattr(self, limit):
                raise UserError(f"{name} = {value} is more than {limit} = {getattr(self, limit)}; lower it")

    def tested(self, task: int) -> int:
        """Return how many samples of each task so far are tested after ``task``, counted from 0."""
        return self.test_samples if task == self.tasks - 1 else self.curve_samples

    @property
    def tuned(self) -> bool:
        """Whether anything is left to choose."""
        return any(len(grid) > 1 for grid in (self.ewc_lambda, self.mbpa_lambda, self.hebb_beta, self.hebb_eta))

    def first(self) -> dict[str, dict[str, float]]:
        """Return the first value of every grid, by method."""
        values = {"ewc": {"lambda": self.ewc_lambda[0]}}
        for size in self.stored:
            values[f"mbpa-{size}"] = {"lr": self.mbpa_lambda[0]}
            values[f"hebb-{size}"] = {"beta": self.hebb_beta[0], "eta": self.hebb_eta[0]}
        return values


@dataclass(frozen=True, slots=True)
class PretrainingSettings(Settings):
    """Training of a backbone and its head on the old classes: SGD over cropped and flipped pictures."""

    section = "pretraining."
    epochs: tuple[int, ...] = (150, 100, 100)  # by phase
    lr: Grid = (0.1, 0.01, 0.001)  # by phase
    # steps keeps each phase's rate; onecycle has one phase, whose rate rises for a quarter of the steps to lr and
    # falls to zero along a cosine.
    schedule: Literal["steps", "onecycle"] = "steps"
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on every parameter
    padding: int = 4  # black pixels around a picture before it is cropped to its size again
    flip: bool = True  # half of the pictures are mirrored

    def __post_init__(self) -> None:
        if len(self.epochs) != len(self.lr):
            raise UserError(f"pretraining.epochs = {self.epochs} and pretraining.lr = {self.lr} must be as many values")
        if self.schedule == "onecycle" and len(self.epochs) > 1:
            raise UserError(f"pretraining.epochs = {self.epochs} must be one value with schedule=onecycle")
        for epochs, lr in zip(self.epochs, self.lr, strict=True):
            checks.at_least("pretraining.epochs", epochs, 1)
            checks.above_zero("pretraining.lr", lr)
        self._least(2, "batch_size")
        self._check(checks.decay, "momentum")
        self._least(0, "weight_decay", "padding")


@dataclass(frozen=True, slots=True)
class IncrementSettings(Settings):
    """A small set of all classes on which the whole network is fine-tuned by RMSprop.

    The paper calls the set small and does not say how small. With 50 pictures a class an epoch has 39 steps, which is
    of the order that its 2 % on new classes after one epoch asks for; with all 500 it would be ten times as many.
    """

    section = "increment."
    samples: int = 50  # a class
    ratios: tuple[int, ...] = (1, 2, 5)  # one run each; half of the new classes have so many times fewer pictures
    epochs: int = 10  # every method is tested after each
    reported: tuple[int, ...] = (1, 3, 10)  # the epochs of the table, and those that tuning looks at
    batch_size: int = 128
    lr: Grid = (5e-5, 1e-4, 5e-4, 1e-3)
    tested: int = 10_000  # test pictures that every method predicts after each epoch

    def __post_init__(self) -> None:
        self._least(1, "tested", "epochs")
        self._least(2, "batch_size")
        self._grids(1, "ratios", "reported")
        self._grids(0, "lr")
        if max(self.reported) > self.epochs:
            raise UserError(
                f"increment.reported = {self.reported} is beyond increment.epochs = {self.epochs}; lower it"
            )
        if self.samples < max(self.ratios):
            raise UserError(
                f"increment.samples = {self.samples} leaves no picture at a ratio of {max(self.ratios)}:1; raise it"
            )


@dataclass(frozen=True, slots=True)
class OnlineSettings(Settings):
    """A stream of pictures of all classes: predict some, score them, learn from them."""

    section = "online."
    interval: int = 100  # pictures predicted between two updates of network and memory
    lr: Grid = (5e-5, 1e-4, 5e-4, 1e-3)  # of RMSprop, one step an interval
    streamed: int = 10_000  # test pictures in the stream

    def __post_init__(self) -> None:
        self._least(2, "interval")
        self._least(1, "streamed")
        self._grids(0, "lr")


@dataclass(frozen=True, slots=True)
class AdaptationSettings(Settings):
    """Hyper-parameters of the methods; the grids hold the paper's values and go beyond them, for every method alike."""

    section = "adaptation."
    k: int = 200  # neighbours a query
    eps: float = 1e-3  # in the closeness 1 / (eps + squared distance)
    mixture_theta: Grid = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
    mixture_gamma: Grid = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    # newton goes to the optimum of the neighbours' loss with a pull; rmsprop is the paper's, with a fresh state for
    # each query, whose rate is quartered until that loss does not rise.
    mbpa_optimizer: Literal["newton", "rmsprop"] = "newton"
    mbpa_lambda: Grid = (1e-4, 1e-3, 1e-2)  # of rmsprop
    mbpa_steps: tuple[int, ...] = (1, 5, 10)  # of rmsprop
    mbpa_pull: Grid = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # of newton
    hebb_beta: Grid = (0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    hebb_eta: Grid = (0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
    hebb_constant: Grid = (0.2, 0.4, 0.6, 0.8)  # the weight in variant v3
    rings: tuple[int, ...] = (250, 500)  # capacities of the memories of Hebb-N

    def __post_init__(self) -> None:
        self._least(1, "k")
        self._check(checks.above_zero, "eps")
        self._grids(0, "mixture_theta", "mbpa_lambda", "hebb_eta")
        self._grids(1, "mbpa_steps", "rings")
        self._grids(0, "mbpa_pull", check=checks.above_zero)
        self._grids(0, "mixture_gamma", "hebb_constant", check=checks.share)
        self._grids(0, "hebb_beta", check=checks.decay)


@dataclass(frozen=True, slots=True)
class SensitivitySettings(Settings):
    """The grid of the heat map (the paper's Fig. hyper); each point is read from one adaptation pass."""

    section = "sensitivity."
    beta: Grid = (0.4, 0.5, 0.6, 0.7, 0.8)
    eta: Grid = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5)

    def __post_init__(self) -> None:
        self._grids(0, "beta", check=checks.decay)
        self._grids(0, "eta")


@dataclass(frozen=True, slots=True)
class TimingSettings(Settings):
    """Comparison of computation time."""

    section = "timing."
    rounds: int = 5  # each runs every method once, in turn
    samples: int = 10_000  # pictures of a run

    def __post_init__(self) -> None:
        self._least(1, "rounds", "samples")


@dataclass(frozen=True, slots=True)
class ClassSettings(Settings):
    """A run of an experiment on new classes."""

    backbone: str = "resnet50"
    old_classes: int = 50  # that the network is pre-trained on
    varied: tuple[int, ...] = (30, 50, 70)  # the numbers of old classes that pretrain-classes compares
    # own splits the classes and pre-trains anew for each seed; shared does so once, and the seeds draw other samples
    # and orders.
    pretrainings: Literal["own", "shared"] = "own"
    # Of the backbone's convolutions: bfloat16 is twice as fast on processors that have it, and slow on others; auto is
    # bfloat16 on a GPU.
    precision: Precision = "auto"
    held_out: int = 50  # training pictures of each class that nothing is trained on; tuning is done on them
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    increment: IncrementSettings = field(default_factory=IncrementSettings)
    online: OnlineSettings = field(default_factory=OnlineSettings)  # of all experiments but the incremental one
    adaptation: AdaptationSettings = field(default_factory=AdaptationSettings)
    sensitivity: SensitivitySettings = field(default_factory=SensitivitySettings)
    timing: TimingSettings = field(default_factory=TimingSettings)

    def __post_init__(self) -> None:
        check_backbone(self.backbone)
        self._least(1, "old_classes", "held_out")
        self._grids(1, "varied")


def check_backbone(name: str) -> None:
    """Raise UserError unless ``name`` is that of a backbone."""
    if name not in BACKBONES:
        raise unknown("backbone", name, BACKBONES, f"choose from {', '.join(BACKBONES)}")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise UserError for a seed twice or below 0, or none at all."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(f"seeds {list(seeds)} must be at least one, each once and none below 0")
