"""Hyper-parameters of the methods, chosen on pictures held out of training; test pictures are never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hebblm.files import read_json, write_json
from hebblm.vision.new_classes.methods import VARIANTS, Method, given_values, grids, method_of
from hebblm.vision.new_classes.pretraining import FOLDER
from hebblm.vision.new_classes.settings import AdaptationSettings
from hebblm.vision.tuning import Chosen, best

Point = dict[str, float]
Evaluate = Callable[[Mapping[str, Method]], Mapping[str, Mapping[str, float]]]
"""From methods to the ``accuracy`` and the ``loss`` in nats of each on held-out pictures."""


def left_to_choose(lr: tuple[float, ...], settings: AdaptationSettings) -> bool:
    """Say whether any grid has more than one value."""
    return any(len(values) > 1 for grid in grids(lr, settings).values() for values in grid.values())


def tuned_once(
    cache: Path, name: str, run: str, tune: Callable[[], tuple[dict[str, Point], dict[str, Any]]]
) -> tuple[dict[str, Point], dict[str, Any]]:
    """Return values and what was tried for them, from the cache where the same was tuned before.

    Args:
        cache: folder of all caches.
        name: of the scenario.
        run: hash of everything that decides about the numbers.
        tune: does it.
    """
    path = cache / FOLDER / f"tuning-{name}-{run}.json"
    if not path.exists():
        values, tried = tune()
        write_json(path, {"values": values, "tried": tried}, seal=True)
    found = read_json(path)
    return found["values"], found["tried"]


def tune_methods(
    evaluate: Evaluate, parametric: Chosen, settings: AdaptationSettings
) -> tuple[dict[str, Point], dict[str, Any]]:
    """Choose for every method; Hebb and its variants take over MbPA's values, as in the paper (its appendix).

    Args:
        evaluate: tests methods on one network that was trained with the chosen rate.
        parametric: that rate.
        settings: the grids.

    Returns:
        The best values by method, and every point that was tried.
    """
    lr = parametric.values["lr"]
    values, tried = given_values(lr, settings), {"parametric": parametric.tried}
    # Hebb and its variants come after MbPA, whose values they take over; they share one adaptation pass.
    for names in (("mixture", "mbpa"), ("hebb", *VARIANTS)):
        points = {name: _points(grids((lr,), settings)[name]) for name in names}
        methods = {
            f"{name}/{at}": method_of(name, {**values, name: point}, settings)
            for name in names
            for at, point in enumerate(points[name])
        }
        scores = evaluate(methods)
        for name in names:
            choice = best([{**point, **scores[f"{name}/{at}"]} for at, point in enumerate(points[name])])
            values[name], tried[name] = choice.values, choice.tried
    return values, tried


def _points(grid: Mapping[str, tuple[float, ...]]) -> list[Point]:
    """Return every combination of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
