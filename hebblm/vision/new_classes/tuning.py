"""Hyper-parameters of the methods, chosen on pictures held out of training; test pictures are never looked at.

The best has the largest harmonic mean of the accuracies on old and on new classes. By the accuracy on all pictures a
network that stands still is the best: it learns no new class and forgets no old one. A rate of the network is as good
as what the network or any Mixture over it reaches: one that is best by itself may have forgotten what the methods over
it need, and Mixture tells for the price of a search.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hebblm.files import read_json, write_json
from hebblm.locks import held
from hebblm.ranks import current
from hebblm.report.record import decode, encode
from hebblm.vision.errors import DivergedError
from hebblm.vision.new_classes.methods import VARIANTS, ImageMethod, given_values, grids, method_of
from hebblm.vision.new_classes.pretraining import FOLDER, Pretrained
from hebblm.vision.new_classes.reading import Snapshot
from hebblm.vision.new_classes.settings import AdaptationSettings
from hebblm.vision.new_classes.setup import ClassSetup
from hebblm.vision.result import best

BALANCE = "harmonic_mean"
REACHED = "harmonic_mean_reached"

Point = dict[str, float]
Tuned = tuple[dict[str, Point], dict[str, Any] | None]
"""The values by method, and every point that was tried for them, None where nothing was left to choose."""
Learn = Callable[[Pretrained, float], list[Snapshot]]
"""Lets a network learn at a rate; returns what the methods read of the held-out pictures meanwhile."""


def left_to_choose(lr: tuple[float, ...], settings: AdaptationSettings) -> bool:
    """Say whether any grid has more than one value."""
    return any(len(values) > 1 for grid in grids(lr, settings).values() for values in grid.values())


def tuned(
    setup: ClassSetup,
    name: str,
    lr: tuple[float, ...],
    old_classes: int,
    learn: Learn,
    *,
    observes: bool,
) -> Tuned:
    """Return the hyper-parameters of an experiment, from the cache where the same was tuned before.

    Args:
        setup: data and settings; the first seed tunes.
        name: of the experiment, ``incremental`` or ``online-N``.
        lr: the learning rates to choose from.
        old_classes: of the network that is learnt from.
        learn: lets a network learn at one of them.
        observes: see :func:`hebblm.vision.new_classes.reading.read`.
    """
    settings, seed = setup.settings.adaptation, setup.seeds[0]
    if not left_to_choose(lr, settings):
        return given_values(lr[0], settings), None
    with current().in_turn():
        start = setup.start(seed, old_classes)
        run = setup.run_of(start, seed, scenario=name.partition("-")[0], score=REACHED)
        path = setup.cache / FOLDER / f"tuning-{name}-{run}.json"
        if not path.exists():
            with held(path, f"the tuning of {name}"):
                if not path.exists():  # another process may have ended it meanwhile
                    part = path.with_suffix(".part.json")
                    values, tried = _tune(setup, lr, partial(learn, start), part, observes=observes)
                    write_json(path, encode({"values": values, "tried": tried}, "tuning"), seal=True)
                    part.unlink(missing_ok=True)
    found = decode(read_json(path), "tuning")
    return found["values"], found["tried"]


def _tune(
    setup: ClassSetup, lr: tuple[float, ...], learn: Callable[[float], list[Snapshot]], part: Path, *, observes: bool
) -> tuple[dict[str, Point], dict[str, list[Point]]]:
    """Choose the rate of the network, then every method along the best one, going on behind what ``part`` has.

    Hebb and its variants take over MbPA's values, as in the paper (its appendix).
    """
    settings = setup.settings.adaptation

    def scores(snapshots: list[Snapshot], methods: Mapping[str, ImageMethod]) -> dict[str, dict[str, float]]:
        # Means over the snapshots, all alike.
        title = f"tune, {len(methods)} points"
        made = [(setup.read(each, methods, title, observes=observes), each) for each in snapshots]
        found = {
            name: [predicted[name].score(each.labels, each.remembered.new) for predicted, each in made]
            for name in methods
        }
        return {
            name: {key: sum(score[key] for score in each) / len(each) for key in each[0]}
            for name, each in found.items()
        }

    tried: dict[str, list[Point]] = decode(read_json(part), "tuning") if part.exists() else {"parametric": []}
    rates, kept = tried["parametric"], None  # of the best rate so far
    unadapted = {"parametric": method_of("parametric", {}, settings)}
    for at, point in enumerate(_points(grids(lr, settings)["mixture"])):
        unadapted[f"mixture/{at}"] = method_of("mixture", {"mixture": point}, settings)
    for rate in lr[len(rates) :]:
        snapshots: list[Snapshot] = []
        try:
            snapshots = learn(rate)
            found = scores(snapshots, unadapted)
            reached = {**found["parametric"], REACHED: max(each[BALANCE] for each in found.values())}
        except DivergedError:
            reached = {"old": 0.0, "new": 0.0, BALANCE: 0.0, "loss": math.inf, REACHED: 0.0}
        rates.append({"lr": rate, **reached})
        write_json(part, encode(tried, "tuning"), seal=True)
        kept = snapshots if best(rates, REACHED)["lr"] == rate else kept
    chosen = best(rates, REACHED)["lr"]
    values = given_values(chosen, settings)
    # Hebb and its variants come after MbPA, whose values they take over; they share one adaptation pass.
    for names in (("mixture", "mbpa"), ("hebb", *VARIANTS)):
        if not tried.keys() >= set(names):
            points = {name: _points(grids((chosen,), settings)[name]) for name in names}
            methods = {
                f"{name}/{at}": method_of(name, {**values, name: point}, settings)
                for name in names
                for at, point in enumerate(points[name])
            }
            kept = kept or learn(chosen)
            found = scores(kept, methods)
            for name in names:
                tried[name] = [{**point, **found[f"{name}/{at}"]} for at, point in enumerate(points[name])]
            write_json(part, encode(tried, "tuning"), seal=True)
        values |= {name: best(tried[name], BALANCE) for name in names}
    return values, tried


def _points(grid: Mapping[str, tuple[float, ...]]) -> list[Point]:
    """Return every combination of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
