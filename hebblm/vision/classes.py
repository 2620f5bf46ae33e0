"""Experiments on new classes: pre-train on some, learn the others at once or as they come, and see
who learns fastest.

The paper's Tables "cifar-incre" (a small set of all classes, tested after every epoch),
"cifar-online", "pretrain", "ablation" and "time", and its Fig. hyper (one pass over a stream of all
classes).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt.work import clock_of
from hebblm.vision.backbones import Classifier
from hebblm.vision.learning import Pictures, Training, batches, features, features_of, learn
from hebblm.vision.pretraining import Pretrained, Pretraining
from hebblm.vision.reading import (
    METHODS,
    VARIANTS,
    PictureBlock,
    Remembered,
    Snapshot,
    methods_of,
    read,
    values_of,
)
from hebblm.vision.result import Outcome, Point, SeedRun, Tried, at_end
from hebblm.vision.settings import Experiment, SensitivitySettings
from hebblm.vision.split import increment, predicted_order
from hebblm.vision.state import Step, divided, generator, stage, summed, take_steps
from hebblm.vision.tuning import ClassSetup, as_step, predict, run_of, start_of, tuned

QUERIES = 100  # adapted at a time after an epoch
WARM_UP_BLOCKS = 2  # of the timing
ONLINE: tuple[Experiment, ...] = ("online", "pretrain-classes", "sensitivity", "ablation")


class FineTuning:
    """A copy of a network that learns an increment; the seed draws that and the order of its
    pictures.
    """

    def __init__(
        self, setup: ClassSetup, start: Pretrained, seed: int, *, ratio: int, lr: float
    ) -> None:
        samples = setup.settings.increment.samples
        self.samples, self.fewer = increment(
            setup.dataset, start.parts, samples=samples, ratio=ratio, seed=seed
        )
        network = start.copy()
        pictures = start.pictures("train")
        optimizer = torch.optim.RMSprop(network.parameters(), lr=lr)
        self.training = Training(network, optimizer, pictures, setup.settings.pretraining)
        self._batch_size, self._start, self._seed = setup.settings.increment.batch_size, start, seed

    def learn(self, epoch: int, title: str) -> None:
        order = generator(self._seed, f"epoch {epoch} of the increment")
        with stage(f"{title}, epoch {epoch + 1}: learn", len(self.samples)) as progress:
            self.training.epoch(
                self.samples, batch_size=self._batch_size, generator=order, progress=progress
            )

    def snapshot(self, part: str, order: Tensor) -> Snapshot:
        """What the network makes of the pictures to predict, and of those it remembers."""
        network, train = self.training.classifier, self.training.pictures
        tested, device, parts = self._start.pictures(part), self._start.device, self._start.parts
        head, hidden = network.frozen_head(), features_of(network, tested, order)
        blocks = [
            PictureBlock(head, some, tested.labels[index.to(device)])
            for some, index in zip(
                torch.split(hidden, QUERIES), torch.split(order, QUERIES), strict=True
            )
        ]
        # Each picture counts once: the increment's pictures of old classes are among those of
        # pre-training.
        seen = torch.unique(torch.cat([parts.train, self.samples]))
        counts = torch.bincount(train.labels[seen.to(device)], minlength=len(parts.new))
        keys, labels = (
            features_of(network, train, self.samples),
            train.labels[self.samples.to(device)],
        )
        return Snapshot(blocks, Remembered(keys, labels, counts, parts.new.to(device)))


def stream(
    classifier: Classifier, pictures: Pictures, order: Tensor, *, interval: int, lr: float
) -> Iterator[PictureBlock]:
    """Yield the pictures block by block as the network sees them; it learns from a block when the
    next is asked for.
    """
    optimizer = torch.optim.RMSprop(classifier.parameters(), lr=lr)
    for index in batches(order, interval):
        batch, labels = pictures.batch(index), pictures.labels[index.to(pictures.labels.device)]
        hidden = features(classifier, batch)
        yield PictureBlock(classifier.frozen_head(), hidden, labels)
        learn(classifier, optimizer, batch, labels)


@lru_cache(maxsize=1)  # read once for all rates of a tuning
def old_memory(start: Pretrained) -> Remembered:
    """The pairs of pre-training, keys as the pre-trained network gives them."""
    samples, pictures = start.parts.train, start.pictures("train")
    with stage("keys of the pre-training pictures", len(samples)) as progress:
        keys = features_of(start.copy(), pictures, samples, progress)
    labels = pictures.labels[samples.to(start.device)]
    new = start.parts.new.to(start.device)
    return Remembered(keys, labels, torch.bincount(labels, minlength=len(new)), new)


def run_incremental(setup: ClassSetup) -> Outcome:
    settings, first, classes = setup.settings.increment, setup.seeds[0], setup.settings.old_classes
    _check(setup, settings.tested, classes)
    wanted = Pretraining.of(setup.dataset, setup.settings, classes, first)
    increment(setup.dataset, wanted.parts, samples=settings.samples, ratio=1, seed=first)

    def learn_held_out(start: Pretrained, lr: float) -> list[Snapshot]:
        held_out = start.parts.held_out[: settings.tested]  # in random order
        tuning, snapshots = FineTuning(setup, start, first, ratio=1, lr=lr), []
        for epoch in range(settings.epochs):
            tuning.learn(epoch, f"tune, lr {lr:g}")
            if epoch + 1 in settings.reported:
                snapshots.append(tuning.snapshot("train", held_out))
        return snapshots

    values, tried = tuned(
        setup, "incremental", settings.lr, classes, learn_held_out, observes=False
    )
    methods = methods_of(METHODS, values, setup.settings.adaptation)

    def run_seed(seed: int, ratio: int) -> SeedRun:
        start, title = start_of(setup, seed, classes), f"seed {seed}, {ratio}:1"
        order = predicted_order(setup.dataset, settings.tested, seed)
        tuning = FineTuning(setup, start, seed, ratio=ratio, lr=values["parametric"]["lr"])

        def step(epoch: int) -> Step:
            tuning.learn(epoch, title)
            snapshot = tuning.snapshot("test", order)
            return as_step(
                predict(setup, snapshot, methods, f"{title}, epoch {epoch + 1}", observes=False)
            )

        path = setup.state / f"incremental-{ratio}-seed-{seed}.state.safetensors"
        run = run_of(setup, start, seed, ratio=ratio, values=values)
        predictions, taken = take_steps(path, run, settings.epochs, step, learner=tuning.training)
        drawn = {
            "test": order,
            "increment": tuning.samples,
            "fewer": tuning.fewer,
            **vars(start.parts),
        }
        labels = setup.dataset.test.labels[order]
        return SeedRun(
            seed, values, labels, predictions, summed(taken), drawn, f"{ratio}:1", start.about
        )

    runs = [partial(run_seed, seed, ratio) for ratio in settings.ratios for seed in setup.seeds]
    return Outcome(tuple(divided(runs)), {"1:1": tried})


def run_online(setup: ClassSetup, experiment: Experiment = "online") -> Outcome:
    """Run the methods of an experiment over the stream, with each seed and each number of old
    classes.
    """
    settings = setup.settings
    counts: tuple[int, ...] = (settings.old_classes,)
    names: tuple[str, ...] = METHODS
    points: dict[str, Point] = {}  # of methods besides the tuned ones
    match experiment:
        case "pretrain-classes":
            counts = settings.varied
        case (
            "ablation"
        ):  # Hebb-N takes over the values of Hebb; v1, v2 and v3 have their own, tuned like Hebb's
            names = (
                "mbpa",
                *VARIANTS,
                *(f"hebb-{capacity}" for capacity in settings.adaptation.rings),
                "hebb",
            )
        case "sensitivity":  # from one adaptation pass a seed
            points = grid_points(settings.sensitivity)
            names = ("parametric", "mixture", "mbpa", *points)
    _check(setup, settings.online.streamed, *counts)

    def run_seed(seed: int, old_classes: int, values: dict[str, Point]) -> SeedRun:
        start, title = start_of(setup, seed, old_classes), f"seed {seed}, {old_classes} old classes"
        order = predicted_order(setup.dataset, settings.online.streamed, seed)

        def step(_: int) -> Step:
            snapshot = _follow(setup, start, "test", order, values["parametric"]["lr"], title)
            return as_step(
                predict(
                    setup,
                    snapshot,
                    methods_of(names, values, settings.adaptation),
                    title,
                    observes=True,
                )
            )

        path = setup.state / f"online-{old_classes}-seed-{seed}.state.safetensors"
        run = run_of(setup, start, seed, names=list(names), values=values)
        predictions, (counted,) = take_steps(path, run, 1, step)
        labels, drawn = setup.dataset.test.labels[order], {"test": order, **vars(start.parts)}
        return SeedRun(
            seed, values, labels, predictions, counted, drawn, str(old_classes), start.about
        )

    runs: list[SeedRun] = []
    tuning = {}
    for count in counts:
        values, tuning[str(count)] = _online_values(setup, count)
        runs += divided(
            [partial(run_seed, seed, count, {**values, **points}) for seed in setup.seeds]
        )
    return Outcome(tuple(runs), tuning)


def grid_points(grid: SensitivitySettings) -> dict[str, Point]:
    pairs = itertools.product(grid.beta, grid.eta)
    return {f"hebb beta={beta:g} eta={eta:g}": {"beta": beta, "eta": eta} for beta, eta in pairs}


def _online_values(setup: ClassSetup, old_classes: int) -> tuple[dict[str, Point], Tried | None]:
    def learn_held_out(start: Pretrained, lr: float) -> list[Snapshot]:
        return [_follow(setup, start, "train", start.parts.held_out, lr, f"tune, lr {lr:g}")]

    return tuned(
        setup,
        f"online-{old_classes}",
        setup.settings.online.lr,
        old_classes,
        learn_held_out,
        observes=True,
    )


def _follow(
    setup: ClassSetup, start: Pretrained, part: str, order: Tensor, lr: float, title: str
) -> Snapshot:
    blocks = []
    with stage(f"{title}: learn", len(order)) as progress:
        for block in stream(
            start.copy(),
            start.pictures(part),
            order,
            interval=setup.settings.online.interval,
            lr=lr,
        ):
            blocks.append(block)
            progress(len(block.labels))
    return Snapshot(blocks, old_memory(start))


def run_timing(setup: ClassSetup) -> dict[str, Any]:
    """Return a result's record of each method's time, as a ratio to that of the network alone.

    Every method runs by itself over the same stream, in turn, so that a change of the machine's
    pace hits all alike. Learning, retrieval, adaptation and writing to the memory are timed;
    computing the old pictures' keys is not.
    """
    settings, seed, classes = setup.settings, setup.seeds[0], setup.settings.old_classes
    _check(setup, settings.timing.samples, classes)
    values, tried = _online_values(setup, classes)
    start = start_of(setup, seed, classes)
    remembered = old_memory(start)
    # Seconds of other threads or another GPU are no rounds of the same timing.
    gpu = torch.cuda.get_device_name(setup.device) if setup.device.type == "cuda" else None
    machine = [torch.get_num_threads(), gpu]
    run = run_of(
        setup, start, seed, values=values, samples=settings.timing.samples, machine=machine
    )

    def timed(name: str, samples: int) -> float:
        order = predicted_order(setup.dataset, min(samples, len(setup.dataset.test)), seed)
        network, pictures, lr = start.copy(), start.pictures("test"), values["parametric"]["lr"]
        methods = methods_of((name,), values, settings.adaptation)
        clock = clock_of(setup.device)
        begin = clock()
        blocks = stream(network, pictures, order, interval=settings.online.interval, lr=lr)
        read(blocks, remembered, methods, k=settings.adaptation.k, observes=True)
        return clock() - begin

    def in_turn(turn: int) -> Step:
        shift = turn % len(METHODS)  # another one comes first in each turn
        names = METHODS[shift:] + METHODS[:shift]
        return {}, {name: {"seconds": timed(name, settings.timing.samples)} for name in names}

    for name in METHODS:
        timed(name, WARM_UP_BLOCKS * settings.online.interval)
    path, title = setup.state / f"timing-{run}.state.safetensors", "time every method in turn"
    _, rounds = take_steps(path, run, settings.timing.rounds, in_turn, title=title)
    seconds = {name: [each[name]["seconds"] for each in rounds] for name in METHODS}
    return {
        "tuning": {str(classes): tried},
        "at_end": at_end({str(classes): tried}),
        "seeds": [{"seed": seed, "pretraining": dict(start.record)}],
        "methods": {
            name: {
                "hyperparameters": values_of(name, values),
                "seconds": _median_of(own),
                "ratio": _median_of(
                    [a / b for a, b in zip(own, seconds["parametric"], strict=True)]
                ),
            }
            for name, own in seconds.items()
        },
    }


def _median_of(values: list[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "rounds": values,
    }


def _check(setup: ClassSetup, predicted: int, *old_classes: int) -> None:
    """Raise UserError for sizes that the data set does not have, before anything is trained."""
    for count, seed in itertools.product(old_classes, setup.seeds):
        Pretraining.of(setup.dataset, setup.settings, count, seed)
    predicted_order(setup.dataset, predicted, setup.seeds[0])
