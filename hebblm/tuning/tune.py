"""Tuning: the best hyper-parameters of every method on validation text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import DYNAMIC, METHODS, TUNABLE, with_parts
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.predictor import Predictor, dotted
from hebblm.errors import UserError
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.scenario import Scenario
from hebblm.models.base import StreamBase
from hebblm.models.dynamic import with_rate
from hebblm.models.update import TRANSFORMERS
from hebblm.tuning.hebbian import HebbGrid, HebbLosses
from hebblm.tuning.points import BestPoint, Losses, Point, divided, next_to, points, with_shares
from hebblm.tuning.replay import Replay
from hebblm.tuning.search import Search, named


def tune(
    scenario: Scenario,
    settings: Hyperparameters,
    grid: Grid,
    *,
    dynamic: bool = True,
    fixed: Mapping[str, float | str] | None = None,
    around: Mapping[str, Any] | None = None,
    methods: Iterable[str] = TUNABLE,
    checkpoint: RunCheckpoint | None = None,
) -> Search:
    """Return the best hyper-parameters of every method on the scenario's stream.

    The states of a fixed base and the neighbours are computed once for all points, and kept in the
    cache for the next time (:mod:`hebblm.tuning.sweep`). Then the text is read up to three times:
    for every method except Hebb, with shares mixed from losses; for Hebb's grid at MbPA's best
    values, from the neighbours' labels; and for Hebb's losses at its best point. The combinations
    take the best values of their parts, as in the paper. Several ranks divide the points of each of
    these, and all of them get the same values.

    Args:
        scenario: opened on a validation split, with the union vocabulary.
        settings: values that are not tuned.
        grid: values to try.
        dynamic: whether to tune dynamic evaluation as well, which reads the text once for every
            point.
        fixed: values by dotted name to keep; the other points are tried all the same.
        around: values by dotted name, found on less text; only points of the grid next to them are
            tried. For a base that learns, then those next to the best point, until that is the best
            of those around it.
        methods: methods to tune, together with those they build on.
        checkpoint: checkpoint of the run, None without one.

    Raises:
        UserError: a fixed value that is not among those tried.
        UserError: Hebb's literal gate, which changes every class and cannot be read off the
            neighbours.
    """
    if settings.methods[HebbConfig].gate != "gated":
        raise UserError(
            f"hebb.gate={settings.methods[HebbConfig].gate} cannot be tuned; tune with gated"
        )
    # above 0, it is tuned
    kept = {name: value for name, value in (fixed or {}).items() if name != "base.lr"}
    usual = defaults()
    if scenario.config.model is not None:
        usual |= TRANSFORMERS
    around = around or {}
    search = Search(settings, grid.around(around), with_parts(methods), kept, usual=usual)
    if scenario.closed:
        search.bits_per_byte = scenario.stream.bits_per_byte
    search.check_fixed()
    moving = dynamic and DYNAMIC in search.wanted
    if moving:
        scenario.check_statistics(settings.dynamic, tuned=True)
    if scenario.kind == "cross-domain" and settings.base.lr > 0:
        rates = points("base", lr=grid.base_lr)
        search.take("base", _alone(search, scenario, rates, scenario.base, around, checkpoint))
    tune_static(search, Replay.of(scenario, search.settings, checkpoint))
    if moving:
        tune_dynamic(search, scenario, around, checkpoint)
    return search


def tune_static(search: Search, replay: Replay) -> None:
    """Tune the methods that read the states of the base."""
    wanted = search.wanted
    best = search.best
    # 1) Methods without parts, all in one reading of the text. With a share to be tried, the memory
    # is read alone; its share of the mixture is computed from the losses afterwards.
    alone = {}
    for name, method in METHODS.items():
        if name in wanted and method.search_space and not method.parts:
            alone[name] = _space(search, name)
    predictors: dict[str, Predictor] = {"lstm": Unadapted()}
    for name, (tried, mixture_weights) in alone.items():
        if mixture_weights:
            predictors |= search.predictors(name, tried, gamma=1.0)
        else:
            predictors |= search.predictors(name, tried)
    losses = replay.score(predictors, f"tune {len(predictors)} points")
    base = losses["lstm"]
    best["lstm"] = BestPoint(float(base.mean()), {}, base)
    for name, (tried, mixture_weights) in alone.items():
        outcomes = _found(losses, name, tried)
        if mixture_weights:
            gamma = f"{dotted(name)}.gamma"
            outcomes = with_shares(outcomes, base, gamma, mixture_weights, replay.every)
        search.take(name, outcomes)

    # 2) Methods over others, at the best values of these.
    if "hebb" in wanted:
        _tune_hebb(search, replay)
    for part in ("mbpa", "hebb"):
        if f"mixture+{part}" in wanted:
            outcomes = with_shares(
                [({}, best["mixture"].losses)],
                best[part].losses,
                f"mixture_{part}.weight",
                search.grid.weight,
                replay.every,
            )
            search.take(f"mixture+{part}", outcomes)


def _tune_hebb(search: Search, replay: Replay) -> None:
    """Tune Hebb over its grid; then read its losses at the best point."""
    before = search.settings.methods
    grid = HebbGrid.of(before[MbpaConfig], before[HebbConfig], search.grid)
    replay.score({}, f"tune {len(grid.points)} points of hebb", [grid], [Mbpa(before[MbpaConfig])])
    search.best["hebb"] = best = BestPoint(fixed=search.fixed)
    best.offer_means(grid.points, grid.means())
    search.check("hebb")
    tuned = search.settings.methods
    losses = HebbLosses(tuned[MbpaConfig], tuned[HebbConfig])
    replay.score({}, "hebb at its best values", [losses], [Mbpa(tuned[MbpaConfig])])
    best.losses = losses.losses()


def tune_dynamic(
    search: Search,
    scenario: Scenario,
    around: Mapping[str, Any],
    checkpoint: RunCheckpoint | None = None,
) -> None:
    """Tune dynamic evaluation, around some values by dotted name or on the whole grid."""
    grid = search.grid
    config = search.settings.dynamic
    squares = gradient_statistics(scenario, config)
    search.note_rate(usual := float(with_rate(config, squares).lr))
    rates = points(
        "dynamic",
        epsilon=[config.epsilon],
        lr=[usual * times for times in grid.dynamic_lr],
        decay=grid.dynamic_decay,
    )

    def base_of(settings: Hyperparameters) -> StreamBase:
        return dynamic_base(scenario, settings.dynamic, squares)

    search.take(DYNAMIC, _alone(search, scenario, rates, base_of, around, checkpoint))


def _alone(
    search: Search,
    scenario: Scenario,
    tried: Sequence[Point],
    base_of: Callable[[Hyperparameters], StreamBase],
    around: Mapping[str, Any],
    checkpoint: RunCheckpoint | None,
) -> Iterator[tuple[Point, Losses]]:
    """Yield points of a base that learns from the stream, with its losses (T,), reading the text
    once for each point.

    With values for them in ``around``, these are the points next to those values, then those next
    to the best so far.
    """
    start = {name: search.fixed.get(name, around[name]) for name in tried[0] if name in around}
    left = list(tried)
    if start:
        left = next_to(tried, start)
    seen = []
    least = np.inf

    def compute(indices: Sequence[int]) -> dict[int, Losses]:
        return {index: losses_of(left[index]) for index in indices}

    def losses_of(point: Point) -> Losses:
        settings = search.start.changed(point)
        memory = scenario.empty_memory(settings)
        base = base_of(settings)
        context = scenario.context(base, memory, 0)
        every = scenario.config.update_every
        replay = Replay(scenario, base, context, every, write=False, checkpoint=checkpoint)
        title = "tune " + ", ".join(f"{name}={value}" for name, value in point.items())
        return replay.read({"base": Unadapted()}, title)["base"]

    while left:
        for point, losses in zip(left, divided(len(left), compute), strict=True):
            yield point, losses
            if losses.mean() < least:
                least = losses.mean()
                start = point
        seen += left
        left = [point for point in next_to(tried, start) if point not in seen]


def _space(search: Search, method: str) -> tuple[list[Point], list[float | str]]:
    """Return the points of a method to read, and the shares gamma to try with each; empty without a
    share.
    """
    tried = METHODS[method].search_space
    assert tried is not None, f"{method} tries points"
    axes = dict(tried(search.settings.methods, search.grid))
    mixture_weights = list(axes.pop("gamma", ()))
    return points(dotted(method), **axes), mixture_weights


def _found(
    losses: Mapping[str, Losses], method: str, tried: Iterable[Point]
) -> Iterator[tuple[Point, Losses]]:
    """Yield the points whose rules :meth:`Search.predictors` made, with their losses (T,), or (C,
    T) of C memories.
    """
    for index, point in enumerate(tried):
        rows = [losses[name] for name in named(f"{method} {index}", point)]
        if len(rows) > 1:
            yield point, np.stack(rows)
        else:
            yield point, rows[0]
