"""Reading loop of pictures: the methods, as rules of ``hebblm.adapt``, predict, are scored, and
only then observe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.functional.gating import LearnedGate
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.hebb import Hebb, HebbConfig
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig, Safeguards
from hebblm.adapt.methods.memory_mixture import memory_mixture
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.memory import FlatMemory, RingMemory
from hebblm.online.session import FixedHead, Losses, OnlineSession, Unit
from hebblm.types import OutputHead
from hebblm.vision.gate import image_best, weights_of
from hebblm.vision.result import KEYS, Values, harmonic_mean
from hebblm.vision.settings import AdaptationSettings

METHODS = ("parametric", "mixture", "mbpa", "hebb", "best")
MIXED = METHODS[:-1]  # what best mixes
VARIANTS = ("hebb-v1", "hebb-v2", "hebb-v3")
"""Of Hebb. Any further name is that of Hebb with values of its own; ``hebb-N`` without values is
Hebb with those of ``hebb`` and a memory of N pairs.
"""
Grid = Mapping[str, tuple[float, ...]]
"""Values to choose from, by the name of a hyper-parameter."""
Top1 = dict[str, float | None]
"""Shares of right answers by ``new``, ``old`` and ``overall``; None where there is no such
picture.
"""


class ImageMethod(NamedTuple):
    """A rule and the memory it reads."""

    predictor: Predictor  # from a mini-batch to log-probabilities
    # None for all training and observed pairs; a number for a memory of only the latest observed
    # pairs pairs only, 0 for none.
    capacity: int | None = None


def grids(network: Grid, settings: AdaptationSettings) -> dict[str, Grid]:
    """The values to choose from by method and hyper-parameter; ``network`` are those of its
    training.
    """
    beta, eta = settings.hebb_beta, settings.hebb_eta
    mbpa: Grid = {
        "rate": settings.mbpa_lambda,
        "steps": settings.mbpa_steps,
    }
    if settings.mbpa_optimizer == "newton":
        mbpa = {"l2_to_base": settings.mbpa_l2_to_base}
    return {
        "parametric": network,
        "mixture": {"theta": settings.mixture_theta, "gamma": settings.mixture_gamma},
        "mbpa": mbpa,
        "hebb": {"beta": beta, "eta": eta},
        "hebb-v1": {"eta": eta},
        "hebb-v2": {"beta": beta, "eta": eta},
        "hebb-v3": {"constant": settings.hebb_constant, "eta": eta},
        "best": {"lr": settings.best_lr},
    }


def given_values(network: Grid, settings: AdaptationSettings) -> dict[str, dict[str, float]]:
    """The first of the values to choose from, by method and hyper-parameter."""
    first = {}
    for name, grid in grids(network, settings).items():
        first[name] = {key: values[0] for key, values in grid.items()}
    return first


def values_of(name: str, values: Values) -> dict[str, float]:
    """Everything that a method runs with, MbPA's part of Hebb included."""
    if name in ("parametric", "mixture", "mbpa", "best"):
        return dict(values[name])
    point = values.get(name, values["hebb"])  # Hebb-N takes over Hebb's
    if name == "hebb-v1":
        return dict(point)
    return {**values["mbpa"], **point}


def methods_of(
    names: Iterable[str], values: Values, settings: AdaptationSettings
) -> dict[str, ImageMethod]:
    return {name: method_of(name, values, settings) for name in names}


def method_of(name: str, values: Values, settings: AdaptationSettings) -> ImageMethod:
    if name == "parametric":
        return ImageMethod(Unadapted(), 0)
    if name == "mixture":  # both sides normalised
        mixture = values[name]
        config = MixtureConfig(theta=mixture["theta"], gamma=mixture["gamma"], scale="absolute")
        return ImageMethod(memory_mixture(Mixture, config))
    if name == "best":
        predictors = tuple(method_of(part, values, settings).predictor for part in MIXED)
        return ImageMethod(image_best(predictors, values[name]))
    point = values["mbpa"]
    solver: dict[str, Any] = {}
    if settings.mbpa_optimizer == "newton":
        solver["l2_to_base"] = point["l2_to_base"]
    else:  # with a fresh state for each query
        solver = {
            "optimizer": "rmsprop",
            "lr_units": "guarded",
            "lr": point["rate"],
            "steps": int(point["steps"]),
        }
    mbpa = MbpaConfig(solver="exact", eps=settings.eps, scale="absolute", weight=1.0, **solver)
    if name == "mbpa":
        return ImageMethod(Mbpa(mbpa))
    # A value that a variant has no use for keeps its default.
    strength: dict[str, Any] = {**values.get(name, values["hebb"])}
    hebb = HebbConfig(**strength, classes="new", scale="absolute", kernel_weight="raw")
    if name in VARIANTS:
        return ImageMethod(Hebb(hebb, mbpa, name.removeprefix("hebb-")))
    if name in values:
        return ImageMethod(Hebb(hebb, mbpa))
    return ImageMethod(Hebb(hebb, mbpa), capacity=int(name.removeprefix("hebb-")))


class PictureBlock(NamedTuple):
    """Pictures that one state of the network predicts."""

    head: OutputHead  # the softmax layer at that moment
    hidden: Tensor  # (n, D) their features at that moment
    labels: Tensor  # (n,) int64
    # (m, D) keys of all that was remembered before this block, pre-training's first, where they
    # were computed anew; None where each stays as it was stored
    keys: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """Memory and counts before the first picture."""

    # (m, D) features of the training pictures, as the network gave them when they were stored
    keys: Tensor
    labels: Tensor  # (m,) int64 of them
    counts: Tensor  # (C,) int64 different training pictures of each class so far, n_i
    new: Tensor  # (C,) bool, the classes that pre-training did not see

    def context(self, head: OutputHead, k: int, capacity: int | None) -> Context:
        """A context over all of it, or over an empty memory that up to ``capacity`` observed pairs
        go to.
        """
        width = self.keys.shape[1]
        device = self.keys.device
        memory: FlatMemory | RingMemory
        if capacity:
            memory = RingMemory(width, capacity, device=device)
        else:
            memory = FlatMemory(width, device=device)
        if capacity is None:
            memory.add(self.keys, self.labels)
        return Context(head, memory, k=k, train_counts=self.counts, new_classes=self.new)


class Snapshot(NamedTuple):
    """Input of the methods: after an epoch, or along a stream."""

    blocks: Sequence[PictureBlock]  # the pictures to predict
    remembered: Remembered  # to begin with

    @property
    def labels(self) -> Tensor:
        return torch.cat([block.labels for block in self.blocks])


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of one method."""

    classes: Tensor  # (n,) uint8 the likeliest class of each picture
    losses: Tensor  # (n,) float32 nats of the right one
    retried: int  # queries whose adaptation diverged and was run at a smaller rate
    gate: Mapping[str, float] | None = None  # weights that a gate had in the end, by name

    def score(self, labels: Tensor, new: Tensor) -> dict[str, float]:
        """Accuracies on ``old``, on ``new`` and on all classes (``overall``), the
        ``harmonic_mean`` of the former two, and the mean ``loss`` in nats.

        The harmonic mean is the measure of generalised zero-shot learning (Xian et al. 2019): 0 for
        a network that knows nothing of one side, however much it knows of the other. A side without
        pictures counts as 0.
        """
        accuracies = top1(self.classes, labels.cpu(), new.cpu())
        old = accuracies["old"] or 0.0
        fresh = accuracies["new"] or 0.0
        return {
            "old": old,
            "new": fresh,
            "overall": accuracies["overall"] or 0.0,
            "harmonic_mean": harmonic_mean(old, fresh),
            "loss": float(self.losses.double().mean()),
        }


def top1(classes: Tensor, labels: Tensor, new: Tensor) -> Top1:
    """The accuracies of predictions (n,) uint8 for labels (n,); ``new`` (C,) bool are the new
    classes.
    """
    right = classes == labels
    is_new = new[labels]
    parts = {"new": is_new, "old": ~is_new, "overall": torch.ones_like(is_new)}
    accuracies: Top1 = {}
    for key in KEYS:
        accuracies[key] = None
        if bool(parts[key].any()):
            accuracies[key] = float(right[parts[key]].double().mean())
    return accuracies


class PictureSource(FixedHead):
    """The softmax layer of a network, which may be another one for each block of pictures."""

    def __init__(self, head: OutputHead) -> None:
        super().__init__(head)
        self._classes: list[Tensor] = []  # (n,) the likeliest by each predictor of a block

    def losses(self, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> Tensor:
        log_probs = predictor.log_probs(batch)  # (n, C)
        self._classes.append(log_probs.argmax(1).to(torch.uint8).cpu())
        return -log_probs.gather(1, labels[:, None]).squeeze(1)

    def taken(self) -> list[Tensor]:
        """Return the likeliest classes (n,) uint8 of the last mini-batch, by predictor, once."""
        classes = self._classes
        self._classes = []
        return classes


@torch.no_grad()
def read(
    blocks: Iterable[PictureBlock],
    remembered: Remembered,
    methods: Mapping[str, ImageMethod],
    *,
    k: int,
    observes: bool,
    progress: Callable[[int], None] = lambda pictures: None,
) -> dict[str, Predicted]:
    """Predict every block with every method; all of them share retrieval and adaptation.

    Each block is predicted and scored before any of it is observed. For ``observes`` it then goes
    to the memories and counts. A gate with a rate learns from it in any case.
    """
    sessions: dict[int | None, OnlineSession[PictureSource]] = {}  # by capacity of the memory
    classes: dict[str, list[Tensor]] = {name: [] for name in methods}
    losses: dict[str, list[Tensor]] = {name: [] for name in methods}
    retried = dict.fromkeys(methods, 0)

    def record(session: OnlineSession[PictureSource], unit: Unit, new_losses: Losses) -> None:
        for (name, nll), likeliest in zip(new_losses.items(), session.source.taken(), strict=True):
            predictor = methods[name].predictor
            classes[name].append(likeliest)
            losses[name].append(nll.float().cpu())
            retried[name] += int(Safeguards.of(predictor, unit.batch).retried.sum())

    stored = [remembered.labels]  # of all that a memory without a limit holds
    for block in blocks:
        for capacity in {method.capacity for method in methods.values()}:
            if capacity not in sessions:
                by_name = {
                    name: method.predictor
                    for name, method in methods.items()
                    if method.capacity == capacity
                }
                context = remembered.context(block.head, k, capacity)
                sessions[capacity] = OnlineSession(PictureSource(block.head), [context], by_name)
        for capacity, session in sessions.items():
            # The network learns nothing here: its training is not part of the reading.
            session.source.head = block.head
            (context,) = session.contexts
            context.set_head(block.head)
            if block.keys is not None and capacity != 0:
                begin = len(remembered.keys) if capacity else 0  # a ring has the stream alone
                context.memory.reset()
                context.memory.add(block.keys[begin:], torch.cat(stored)[begin:])
            unit = Unit(EvalBatch(block.hidden, context), block.labels)
            session.interval([unit], partial(record, session), learn=observes, write=capacity != 0)
        if observes:
            stored.append(block.labels)
        progress(len(block.labels))

    predicted = {}
    for name, method in methods.items():
        likeliest = torch.cat(classes[name])
        nll = torch.cat(losses[name])
        gate = _gate_of(sessions[method.capacity], method.predictor)
        predicted[name] = Predicted(likeliest, nll, retried[name], gate)
    return predicted


def _gate_of(
    session: OnlineSession[PictureSource], predictor: Predictor
) -> Mapping[str, float] | None:
    """Return the weights that a predictor's gate has learned, None if it has no gate."""
    (context,) = session.contexts
    learned = context.mixture_weights.get(predictor)  # type: ignore[call-overload]
    if not isinstance(learned, LearnedGate):
        return None
    return weights_of(learned)
