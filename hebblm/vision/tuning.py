"""Hyper-parameters of the network and of the methods over it, chosen on pictures held out of
training, never on test pictures.

The network comes first: its numbers are the best by its own accuracy over all classes in the end,
which along a stream is the second half. Then each method over that network, as in the paper: the
best by accuracy over all classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hebblm.io.files import hash_of, read_json, write_json
from hebblm.io.locks import file_lock
from hebblm.report.result.record import decode, encode
from hebblm.runtime.ranks import current
from hebblm.vision.pretraining import FOLDER, Pretrained, Pretraining, pretrained
from hebblm.vision.reading import (
    VARIANTS,
    Grid,
    ImageMethod,
    Predicted,
    Snapshot,
    given_values,
    grids,
    method_of,
    read,
    top1,
)
from hebblm.vision.result import END, OVERALL, Point, Tried, Values, best
from hebblm.vision.settings import ClassSettings
from hebblm.vision.state import NUMBERS, DivergedError, Setup, Step, program, stage

ClassSetup = Setup[ClassSettings]
Learn = Callable[[Pretrained, Point], Snapshot]
"""Trains a network with numbers of its own; returns the held-out pictures that the methods read:
after training, or along the stream.
"""


def start_of(setup: ClassSetup, seed: int, old_classes: int) -> Pretrained:
    return pretrained(
        Pretraining.of(setup.dataset, setup.settings, old_classes, seed), setup.cache, setup.device
    )


def run_of(setup: ClassSetup, start: Pretrained, seed: int, **further: Any) -> str:
    """A hash of everything that decides about the numbers of a stage."""
    settings = asdict(setup.settings)
    return hash_of(
        {
            # The grid of the heat map and the size of the timing decide about no prediction.
            **{name: settings[name] for name in ("increment", "online", "adaptation")},
            "pretraining": start.pretraining.run,
            "held_out": setup.settings.held_out,
            "seed": seed,
            "device": setup.device.type,
            "program": program(*NUMBERS),
            **further,
        }
    )


def predict(
    setup: ClassSetup,
    snapshot: Snapshot,
    methods: Mapping[str, ImageMethod],
    title: str,
    *,
    observes: bool,
) -> dict[str, Predicted]:
    """Predict the pictures of a snapshot with some methods; see
    :func:`hebblm.vision.reading.read`.
    """
    if not all(bool(block.head.logits(block.hidden).isfinite().all()) for block in snapshot.blocks):
        raise DivergedError(f"{title}: training diverged; lower the learning rate")
    with stage(f"{title}: adapt", len(snapshot.labels)) as progress:
        return read(
            *snapshot, methods, k=setup.settings.adaptation.k, observes=observes, progress=progress
        )


def as_step(predicted: Mapping[str, Predicted]) -> Step:
    """Predictions, and how many queries had to be adapted at a smaller rate, as the state of a run
    has them.
    """
    classes = {name: prediction.classes for name, prediction in predicted.items()}
    counted = {name: {"stabilized": item.retried} for name, item in predicted.items()}
    return classes, counted


def left_to_choose(network: Grid, settings: ClassSettings) -> bool:
    for grid in grids(network, settings.adaptation).values():
        if any(len(values) > 1 for values in grid.values()):
            return True
    return False


def tuned(
    setup: ClassSetup,
    name: str,
    network: Grid,
    old_classes: int,
    learn: Learn,
    *,
    observes: bool,
) -> tuple[dict[str, Point], Tried | None]:
    """The values by method, and every point that was tried for them, None where nothing was left to
    choose.

    They come from the cache where the same was tuned before. The first seed tunes; ``learn`` lets a
    network learn with values of the grid ``network``. Where methods do not observe what they
    predict, held-out pictures are read in any case: the gate of ``best`` learns on them, and stays.
    """
    if observes and not left_to_choose(network, setup.settings):
        return given_values(network, setup.settings.adaptation), None
    with current().in_turn():
        start = start_of(setup, setup.seeds[0], old_classes)
        run = run_of(setup, start, setup.seeds[0], scenario=name.partition("-")[0], score=OVERALL)
        path = setup.cache / FOLDER / f"tuning-{name}-{run}.json"
        if not path.exists():
            with file_lock(path, f"the tuning of {name}"):
                if not path.exists():  # another process may have ended it meanwhile
                    part = path.with_suffix(".part.json")
                    values, tried = _tune(
                        setup, network, partial(learn, start), part, observes=observes
                    )
                    write_json(
                        path, encode({"values": values, "tried": tried}, "tuning"), seal=True
                    )
                    part.unlink(missing_ok=True)
    kept = decode(read_json(path), "tuning")
    return kept["values"], kept["tried"]


def _scored(
    setup: ClassSetup,
    snapshot: Snapshot,
    name_points: Mapping[str, list[Point]],
    values: Values,
    *,
    observes: bool,
) -> Tried:
    """Return every method with each of its points, and its scores on held-out pictures."""
    methods = {}
    for name, points in name_points.items():
        for at, point in enumerate(points):
            with_point = {**values, name: point}
            methods[f"{name}/{at}"] = method_of(name, with_point, setup.settings.adaptation)
    answers = predict(setup, snapshot, methods, f"tune, {len(methods)} points", observes=observes)

    def scores(name: str, at: int) -> dict[str, float]:
        predicted = answers[f"{name}/{at}"]
        labels = snapshot.labels
        new = snapshot.remembered.new
        accuracies = predicted.score(labels, new)
        if name == "parametric":
            begin = len(labels) // 2 if observes else 0
            late = top1(predicted.classes[begin:], labels[begin:].cpu(), new.cpu())
            accuracies[END] = late["overall"] or 0.0
        if predicted.gate is not None and not observes:
            accuracies |= predicted.gate
        return accuracies

    tried: Tried = {}
    for name, points in name_points.items():
        tried[name] = [{**point, **scores(name, at)} for at, point in enumerate(points)]
    return tried


def _tune(
    setup: ClassSetup,
    network: Grid,
    learn: Callable[[Point], Snapshot],
    part: Path,
    *,
    observes: bool,
) -> tuple[dict[str, Point], Tried]:
    """Choose the numbers of the network, then every method along the best ones, going on after what
    ``part`` has.

    Hebb and its variants take over MbPA's values, as in the paper (its appendix), and the gate of
    ``best`` those of all its parts.
    """
    settings = setup.settings.adaptation

    def points_of(name: str) -> list[Point]:
        grid = grids(network, settings)[name]
        combinations = itertools.product(*grid.values())
        return [dict(zip(grid, values, strict=True)) for values in combinations]

    def scored(snapshot: Snapshot, name_points: Mapping[str, list[Point]], values: Values) -> Tried:
        return _scored(setup, snapshot, name_points, values, observes=observes)

    # 1) The network.
    tried: Tried = {"parametric": []}
    if part.exists():
        tried = decode(read_json(part), "tuning")
    points = tried["parametric"]
    kept = None  # the snapshot of the best point so far
    for point in points_of("parametric")[len(points) :]:
        snapshot = None
        try:
            snapshot = learn(point)
            points += scored(snapshot, {"parametric": [point]}, {})["parametric"]
        except DivergedError:
            nothing = dict.fromkeys(("old", "new", OVERALL, "harmonic_mean", END), 0.0)
            points.append({**point, **nothing, "loss": math.inf})
        write_json(part, encode(tried, "tuning"), seal=True)
        if best(points, END) == point:
            kept = snapshot
    chosen = best(points, END)
    values = {**given_values(network, settings), "parametric": chosen}

    # 2) The methods over it. Hebb and its variants come after MbPA, whose values they take over;
    # they share one adaptation pass. The gate comes last.
    for names in (("mixture", "mbpa"), ("hebb", *VARIANTS), ("best",)):
        if not tried.keys() >= set(names):
            kept = kept or learn(chosen)
            tried |= scored(kept, {name: points_of(name) for name in names}, values)
            write_json(part, encode(tried, "tuning"), seal=True)
        values |= {name: best(tried[name], OVERALL) for name in names}
    if not observes:
        values["best"]["lr"] = 0.0  # it has learned, and stays
    return values, tried
