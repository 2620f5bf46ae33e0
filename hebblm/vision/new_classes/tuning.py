"""Hyper-parameters of the methods, chosen on pictures held out of training; test pictures are never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hebblm.adapt import Hebb, Mbpa, Mixture, Rule
from hebblm.files import read_json, write_json
from hebblm.vision.new_classes.methods import Method, given_values, hebb_config, mbpa_config, mixture_config
from hebblm.vision.new_classes.pretraining import FOLDER
from hebblm.vision.new_classes.settings import AdaptationSettings
from hebblm.vision.tuning import Chosen, best

Point = dict[str, float]
Evaluate = Callable[[Mapping[str, Method]], Mapping[str, Mapping[str, float]]]
"""From methods to the ``accuracy`` and the ``loss`` in nats of each on held-out pictures."""


def left_to_choose(lr: tuple[float, ...], settings: AdaptationSettings) -> bool:
    """Say whether any grid has more than one value."""
    return any(len(grid) > 1 for grid in (lr, *_grids(settings)))


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
        write_json(path, {"values": values, "tried": tried})
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
    chosen = {"parametric": parametric}
    chosen |= _choose(evaluate, {"mixture": _mixtures(settings), "mbpa": _mbpas(settings)})
    chosen |= _choose(evaluate, _hebbs(chosen["mbpa"].values, settings))
    values = given_values(parametric.values["lr"], settings)
    for name, choice in chosen.items():
        values[name] = choice.values
    return values, {name: choice.tried for name, choice in chosen.items()}


def _choose(evaluate: Evaluate, grids: Mapping[str, list[tuple[Point, Rule]]]) -> dict[str, Chosen]:
    """Test all points of some grids at once and return the best of each."""
    methods = {
        f"{name}/{at}": Method(rule) for name, grid in grids.items() for at, (_, rule) in enumerate(grid)
    }
    scores = evaluate(methods)
    return {
        name: best([{**point, **scores[f"{name}/{at}"]} for at, (point, _) in enumerate(grid)])
        for name, grid in grids.items()
    }


def _grids(settings: AdaptationSettings) -> tuple[tuple[float, ...], ...]:
    return (
        settings.mixture_theta,
        settings.mixture_gamma,
        settings.mbpa_lambda,
        settings.mbpa_steps,
        settings.hebb_beta,
        settings.hebb_eta,
        settings.hebb_constant,
    )


def _points(**grids: tuple[float, ...]) -> Iterator[Point]:
    """Yield every combination."""
    for values in itertools.product(*grids.values()):
        yield dict(zip(grids, values, strict=True))


def _mixtures(settings: AdaptationSettings) -> list[tuple[Point, Rule]]:
    points = _points(theta=settings.mixture_theta, gamma=settings.mixture_gamma)
    return [(point, Mixture(mixture_config(point))) for point in points]


def _mbpas(settings: AdaptationSettings) -> list[tuple[Point, Rule]]:
    points = _points(rate=settings.mbpa_lambda, steps=settings.mbpa_steps)
    return [(point, Mbpa(mbpa_config(point, settings))) for point in points]


def _hebbs(mbpa_values: Point, settings: AdaptationSettings) -> dict[str, list[tuple[Point, Rule]]]:
    """Return the grids of Hebb and its variants; they share one adaptation pass."""
    mbpa = mbpa_config(mbpa_values, settings)

    def grid(variant: str | None, **grids: tuple[float, ...]) -> list[tuple[Point, Rule]]:
        return [(point, Hebb(hebb_config(point), mbpa, variant)) for point in _points(**grids)]

    beta, eta = settings.hebb_beta, settings.hebb_eta
    return {
        "hebb": grid(None, beta=beta, eta=eta),
        "hebb-v1": grid("v1", eta=eta),
        "hebb-v2": grid("v2", beta=beta, eta=eta),
        "hebb-v3": grid("v3", constant=settings.hebb_constant, eta=eta),
    }
