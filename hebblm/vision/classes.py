"""Experiments on new classes: pre-train on some, learn the others at once or as they come, and see
who learns fastest.

The paper's Tables "cifar-incre" (a small set of all classes, tested after every epoch),
"cifar-online", "pretrain", "ablation" and "time", and its Fig. hyper (one pass over a stream of all
classes).
"""

from __future__ import annotations

import itertools
import statistics
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from hebblm.adapt.work import clock_of
from hebblm.vision.fine_tuning import FineTuning, Stream
from hebblm.vision.learning import features_of
from hebblm.vision.pretraining import Pretrained, Pretraining
from hebblm.vision.reading import (
    METHODS,
    VARIANTS,
    Remembered,
    Snapshot,
    methods_of,
    read,
    values_of,
)
from hebblm.vision.result import MISSING, Outcome, Point, SeedRun, Tried, at_end
from hebblm.vision.settings import Experiment, SensitivitySettings
from hebblm.vision.split import increment, predicted_order
from hebblm.vision.state import Step, divided, stage, summed, take_steps
from hebblm.vision.tuning import ClassSetup, as_step, predict, run_of, start_of, tuned

WARM_UP_BLOCKS = 2  # of the timing
ONLINE: tuple[Experiment, ...] = ("online", "pretrain-classes", "sensitivity", "ablation")


@lru_cache(maxsize=1)  # read once for all rates of a tuning
def old_memory(start: Pretrained) -> Remembered:
    """The pairs of pre-training, keys as the pre-trained network gives them."""
    samples = start.parts.train
    pictures = start.pictures("train")
    with stage("keys of the pre-training pictures", len(samples)) as progress:
        keys = features_of(start.copy(), pictures, samples, progress)
    labels = pictures.labels[samples.to(start.device)]
    new = start.parts.new.to(start.device)
    return Remembered(keys, labels, torch.bincount(labels, minlength=len(new)), new)


def run_incremental(setup: ClassSetup) -> Outcome:
    settings = setup.settings.increment
    first = setup.seeds[0]
    classes = setup.settings.old_classes
    _check(setup, settings.tested, classes)
    wanted = Pretraining.of(setup.dataset, setup.settings, classes, first)
    increment(setup.dataset, wanted.parts, samples=settings.samples, ratio=1, seed=first)

    def learn_held_out(start: Pretrained, point: Point) -> Snapshot:
        tuning = FineTuning(setup, start, first, ratio=1, point=point)
        for epoch in range(settings.epochs):
            tuning.learn(epoch, f"tune, {_written(point)}")
        held_out = start.parts.held_out[: settings.chosen_on]  # in random order
        return tuning.snapshot("train", held_out)

    values, tried = tuned(
        setup, "incremental", settings.network, classes, learn_held_out, observes=False
    )
    methods = methods_of(METHODS, values, setup.settings.adaptation)

    def run_seed(seed: int, ratio: int) -> SeedRun:
        start = start_of(setup, seed, classes)
        title = f"seed {seed}, {ratio}:1"
        order = predicted_order(setup.dataset, settings.tested, seed)
        tuning = FineTuning(setup, start, seed, ratio=ratio, point=values["parametric"])

        def step(epoch: int) -> Step:
            tuning.learn(epoch, title)
            count = settings.tested_after(epoch + 1)
            if count == 0:
                nothing = torch.full((len(order),), MISSING, dtype=torch.uint8)
                none_retried = {name: {"stabilized": 0} for name in methods}
                return dict.fromkeys(methods, nothing), none_retried
            snapshot = tuning.snapshot("test", order[:count])
            whole_title = f"{title}, epoch {epoch + 1}"
            answers = predict(setup, snapshot, methods, whole_title, observes=False)
            classes_of, numbers = as_step(answers)
            rest = len(order) - count
            padded = {}
            for name, predicted in classes_of.items():
                padded[name] = pad(predicted, (0, rest), value=MISSING)
            return padded, numbers

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

    runs = []
    for ratio in settings.ratios:
        for seed in setup.seeds:
            runs.append(partial(run_seed, seed, ratio))
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
        # Hebb-N takes over the values of Hebb; v1, v2 and v3 have their own, tuned like Hebb's
        case "ablation":
            rings = tuple(f"hebb-{capacity}" for capacity in settings.adaptation.rings)
            names = ("mbpa", *VARIANTS, *rings, "hebb")
        case "sensitivity":  # from one adaptation pass a seed
            points = grid_points(settings.sensitivity)
            names = ("parametric", "mixture", "mbpa", *points)
    _check(setup, settings.online.streamed, *counts)

    def run_seed(seed: int, old_classes: int, values: dict[str, Point]) -> SeedRun:
        start = start_of(setup, seed, old_classes)
        title = f"seed {seed}, {old_classes} old classes"
        order = predicted_order(setup.dataset, settings.online.streamed, seed)

        def step(_: int) -> Step:
            snapshot, drift = _follow(
                setup, start, "test", order, seed, values["parametric"], title
            )
            methods = methods_of(names, values, settings.adaptation)
            classes_of, numbers = as_step(predict(setup, snapshot, methods, title, observes=True))
            first = next(iter(numbers))
            return classes_of, {**numbers, first: {**numbers[first], **drift}}

        path = setup.state / f"online-{old_classes}-seed-{seed}.state.safetensors"
        run = run_of(setup, start, seed, names=list(names), values=values)
        predictions, (counted,) = take_steps(path, run, 1, step)
        labels = setup.dataset.test.labels[order]
        drawn = {"test": order, **vars(start.parts)}
        return SeedRun(
            seed, values, labels, predictions, counted, drawn, str(old_classes), start.about
        )

    runs: list[SeedRun] = []
    tuning = {}
    for count in counts:
        values, tuning[str(count)] = _online_values(setup, count)
        all_values = {**values, **points}
        runs += divided([partial(run_seed, seed, count, all_values) for seed in setup.seeds])
    return Outcome(tuple(runs), tuning)


def grid_points(grid: SensitivitySettings) -> dict[str, Point]:
    pairs = itertools.product(grid.beta, grid.eta)
    return {f"hebb beta={beta:g} eta={eta:g}": {"beta": beta, "eta": eta} for beta, eta in pairs}


def _online_values(setup: ClassSetup, old_classes: int) -> tuple[dict[str, Point], Tried | None]:
    settings = setup.settings.online

    def learn_held_out(start: Pretrained, point: Point) -> Snapshot:
        order = start.parts.held_out[: settings.chosen_on]
        title = f"tune, {_written(point)}"
        return _follow(setup, start, "train", order, setup.seeds[0], point, title)[0]

    return tuned(
        setup,
        f"online-{old_classes}",
        settings.network,
        old_classes,
        learn_held_out,
        observes=True,
    )


def _written(point: Point) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in point.items())


def _follow(
    setup: ClassSetup,
    start: Pretrained,
    part: str,
    order: Tensor,
    seed: int,
    point: Point,
    title: str,
) -> tuple[Snapshot, dict[str, float]]:
    """Train the network along a stream; return the pictures as methods read them, and the drift of
    its keys.
    """
    blocks = []
    learning = Stream(setup, start, part, order, seed, point)
    with stage(f"{title}: learn", len(order)) as progress:
        for block in learning:
            blocks.append(block)
            progress(len(block.labels))
    remembered = old_memory(start)
    return Snapshot(blocks, remembered), learning.drift(remembered, blocks)


def run_timing(setup: ClassSetup) -> dict[str, Any]:
    """Return a result's record of each method's time, as a ratio to that of the network alone.

    Every method runs by itself over the same stream, in turn, so that a change of the machine's
    pace hits all alike. Learning, retrieval, adaptation and writing to the memory are timed;
    computing the old pictures' keys is not.
    """
    settings = setup.settings
    seed = setup.seeds[0]
    classes = setup.settings.old_classes
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
        methods = methods_of((name,), values, settings.adaptation)
        blocks = Stream(setup, start, "test", order, seed, values["parametric"])
        clock = clock_of(setup.device)
        begin = clock()
        read(blocks, remembered, methods, k=settings.adaptation.k, observes=True)
        return clock() - begin

    def in_turn(turn: int) -> Step:
        shift = turn % len(METHODS)  # another one comes first in each turn
        names = METHODS[shift:] + METHODS[:shift]
        return {}, {name: {"seconds": timed(name, settings.timing.samples)} for name in names}

    for name in METHODS:
        timed(name, WARM_UP_BLOCKS * settings.online.interval)
    path = setup.state / f"timing-{run}.state.safetensors"
    title = "time every method in turn"
    _, rounds = take_steps(path, run, settings.timing.rounds, in_turn, title=title)
    records = {}
    for name in METHODS:
        times = []
        ratios = []
        for seconds in rounds:
            times.append(seconds[name]["seconds"])
            ratios.append(seconds[name]["seconds"] / seconds["parametric"]["seconds"])
        records[name] = {
            "hyperparameters": values_of(name, values),
            "seconds": _median_of(times),
            "ratio": _median_of(ratios),
        }
    return {
        "tuning": {str(classes): tried},
        "at_end": at_end({str(classes): tried}),
        "seeds": [{"seed": seed, "pretraining": dict(start.record)}],
        "methods": records,
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
