"""Hyper-parameters of the methods on new classes, chosen on pictures held out of training, never on
test pictures.

The best has the largest harmonic mean of the accuracies on old and on new classes. By the accuracy
on all pictures a network that stands still is the best: it learns no new class and forgets no old
one. A rate of the network is as good as what the network or any Mixture over it reaches: one that
is best by itself may have forgotten what the methods over it need, and Mixture tells for the price
of a search.
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
from hebblm.io.locks import held
from hebblm.report.record import decode, encode
from hebblm.runtime.ranks import current
from hebblm.vision.pretraining import FOLDER, Pretrained, Pretraining, pretrained
from hebblm.vision.reading import (
    VARIANTS,
    ImageMethod,
    Predicted,
    Snapshot,
    given_values,
    grids,
    method_of,
    read,
)
from hebblm.vision.result import Point, Tried, best
from hebblm.vision.settings import ClassSettings
from hebblm.vision.state import NUMBERS, DivergedError, Setup, Step, program, stage

ClassSetup = Setup[ClassSettings]
Learn = Callable[[Pretrained, float], list[Snapshot]]
"""Trains a network at a rate; returns the snapshots of held-out pictures that the methods read
meanwhile.
"""
BALANCE = "harmonic_mean"
REACHED = "harmonic_mean_reached"


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
    made = {name: each.classes for name, each in predicted.items()}
    return made, {name: {"stabilized": each.stabilized} for name, each in predicted.items()}


def left_to_choose(lr: tuple[float, ...], settings: ClassSettings) -> bool:
    return any(
        len(values) > 1
        for grid in grids(lr, settings.adaptation).values()
        for values in grid.values()
    )


def tuned(
    setup: ClassSetup,
    name: str,
    lr: tuple[float, ...],
    old_classes: int,
    learn: Learn,
    *,
    observes: bool,
) -> tuple[dict[str, Point], Tried | None]:
    """The values by method, and every point that was tried for them, None where nothing was left to
    choose.

    They come from the cache where the same was tuned before. The first seed tunes; ``learn`` lets a
    network learn at one of the rates ``lr``.
    """
    if not left_to_choose(lr, setup.settings):
        return given_values(lr[0], setup.settings.adaptation), None
    with current().in_turn():
        start = start_of(setup, setup.seeds[0], old_classes)
        run = run_of(setup, start, setup.seeds[0], scenario=name.partition("-")[0], score=REACHED)
        path = setup.cache / FOLDER / f"tuning-{name}-{run}.json"
        if not path.exists():
            with held(path, f"the tuning of {name}"):
                if not path.exists():  # another process may have ended it meanwhile
                    part = path.with_suffix(".part.json")
                    values, tried = _tune(setup, lr, partial(learn, start), part, observes=observes)
                    write_json(
                        path, encode({"values": values, "tried": tried}, "tuning"), seal=True
                    )
                    part.unlink(missing_ok=True)
    found = decode(read_json(path), "tuning")
    return found["values"], found["tried"]


def _tune(
    setup: ClassSetup,
    lr: tuple[float, ...],
    learn: Callable[[float], list[Snapshot]],
    part: Path,
    *,
    observes: bool,
) -> tuple[dict[str, Point], Tried]:
    """Choose the rate of the network, then every method along the best one, going on after what
    ``part`` has.

    Hebb and its variants take over MbPA's values, as in the paper (its appendix).
    """
    settings = setup.settings.adaptation

    def points_of(name: str) -> list[Point]:
        grid = grids(lr, settings)[name]
        return [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]

    def scored(
        snapshots: list[Snapshot], points: Mapping[str, list[Point]], values: Mapping[str, Point]
    ) -> Tried:
        # Every method with each of its points, and its means over the snapshots, all alike.
        methods = {
            f"{name}/{at}": method_of(name, {**values, name: point}, settings)
            for name, own in points.items()
            for at, point in enumerate(own)
        }
        title = f"tune, {len(methods)} points"
        made = [
            (predict(setup, snapshot, methods, title, observes=observes), snapshot)
            for snapshot in snapshots
        ]

        def means(key: str) -> dict[str, float]:
            scores = [predicted[key].score(of.labels, of.remembered.new) for predicted, of in made]
            return {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}

        return {
            name: [{**point, **means(f"{name}/{at}")} for at, point in enumerate(own)]
            for name, own in points.items()
        }

    tried: Tried = decode(read_json(part), "tuning") if part.exists() else {"parametric": []}
    rates, kept = tried["parametric"], None  # of the best rate so far
    unadapted: dict[str, list[Point]] = {"mixture": points_of("mixture"), "parametric": [{}]}
    for rate in lr[len(rates) :]:
        snapshots: list[Snapshot] = []
        try:
            snapshots = learn(rate)
            found = scored(snapshots, unadapted, {})
            reached = max(point[BALANCE] for points in found.values() for point in points)
            rates.append({"lr": rate, **found["parametric"][0], REACHED: reached})
        except DivergedError:
            rates.append(
                {"lr": rate, "old": 0.0, "new": 0.0, BALANCE: 0.0, "loss": math.inf, REACHED: 0.0}
            )
        write_json(part, encode(tried, "tuning"), seal=True)
        kept = snapshots if best(rates, REACHED)["lr"] == rate else kept
    chosen = best(rates, REACHED)["lr"]
    values = given_values(chosen, settings)
    # Hebb and its variants come after MbPA, whose values they take over; they share one adaptation
    # pass.
    for names in (("mixture", "mbpa"), ("hebb", *VARIANTS)):
        if not tried.keys() >= set(names):
            kept = kept or learn(chosen)
            tried |= scored(kept, {name: points_of(name) for name in names}, values)
            write_json(part, encode(tried, "tuning"), seal=True)
        values |= {name: best(tried[name], BALANCE) for name in names}
    return values, tried
