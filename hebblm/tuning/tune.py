"""Tuning: the best hyper-parameters of every method on validation text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import DYNAMIC, DYNAMIC_METHODS, METHODS, TUNABLE, with_parts
from hebblm.adapt.methods.hebb import RANGES, HebbConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.rule import Rule, dotted
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.scenario import Scenario
from hebblm.models.base import StreamBase
from hebblm.models.dynamic import with_rate
from hebblm.models.update import TRANSFORMERS
from hebblm.tuning.best import BestPoint, Losses, divided, with_shares
from hebblm.tuning.count_weights import TermObserver, Terms, learn_weights
from hebblm.tuning.gate import GateFeatures, learn_gate
from hebblm.tuning.grid import Point, next_to, points
from hebblm.tuning.hebbian import HebbGrid, HebbLosses
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
) -> Search:
    """Return the best hyper-parameters of every method on the scenario's stream.

    The share of Mixture-gated is learned from the losses of its two parts (:mod:`hebblm.tuning.gate`), the weights of
    Hebb-learned from the labels that have a Hebbian term (:mod:`hebblm.tuning.count_weights`).

    The states of a fixed base and the neighbours are computed once for all points, and kept in the cache for the next
    time (:mod:`hebblm.tuning.sweep`). The text is then gone through up to three times: for every method but Hebb, whose
    shares are mixed from losses; for Hebb's grid beside MbPA's best values, read off the neighbours' labels; and for
    what the learned weights depend on. The combinations take over the best values of their parts, as in the paper.
    Several ranks divide the points of each of these, and all of them come to the same values.

    Args:
        scenario: opened on a validation split, with the union vocabulary.
        settings: what is not tuned.
        grid: values that are tried.
        dynamic: tune dynamic evaluation and what reads its states as well, which reads the text once a point.
        fixed: values by dotted name that are taken as they are; the other points are tried all the same.
        around: values by dotted name, found on less text. Of the grid only what is next to them is tried; of a base
            that learns, then what is next to the best, until that is the best of those around it.
        methods: only these are tuned, and what they rest on.

    Raises:
        UserError: a fixed value that is not among those tried.
        UserError: Hebb's literal gate, which changes every class and cannot be read off the neighbours.
    """
    if settings.methods[HebbConfig].gate != "gated":
        raise UserError(f"hebb.gate={settings.methods[HebbConfig].gate} cannot be tuned; tune with gated")
    kept = {name: value for name, value in (fixed or {}).items() if name != "base.lr"}  # above 0, it is tuned
    usual = defaults() | (TRANSFORMERS if scenario.config.model is not None else {})
    around = around or {}
    search = Search(settings, grid.around(around), with_parts(methods), kept, usual=usual)
    search.check_fixed()
    moving = dynamic and not search.wanted.isdisjoint(DYNAMIC_METHODS)
    if moving:
        scenario.check_statistics(settings.dynamic)
    if scenario.kind == "cross-domain" and settings.base.lr > 0:
        rates = points("base", lr=grid.base_lr)
        search.take("base", _alone(search, scenario, rates, scenario.base, around))
    tune_static(search, Replay.of(scenario, search.settings))
    if moving:
        tune_dynamic(search, scenario, around)
    return search


def tune_static(search: Search, replay: Replay) -> None:
    """Tune the methods that read the states of the base."""
    grid, wanted, best, methods = search.grid, search.wanted, search.best, search.settings.methods
    alone = {name: _space(search, name) for name, method in METHODS.items() if method.tried and not method.parts}
    lenders = {"mixture-gated": "mixture", "mixture+cache": "cache"}
    read = wanted | {lender for method, lender in lenders.items() if method in wanted}
    rules: dict[str, Rule] = {"lstm": Unadapted()}
    for method, (some, shares) in alone.items():
        if method in read:
            rules |= search.rules(method, some, **({"gamma": 1.0} if shares else {}))
    features = GateFeatures(grid.fixed_theta, methods[MixtureConfig].scale)
    observers = [features] if "mixture-gated" in wanted else []
    losses = replay.score(rules, f"tune {len(rules)} points", observers)
    base = losses["lstm"]
    best["lstm"] = BestPoint(float(base.mean()), {}, base)
    for method, (some, shares) in alone.items():
        if method in wanted:
            found = _found(losses, method, some)
            search.take(method, _with_gamma(method, found, base, shares, replay.every) if shares else found)
    if "hebb" in wanted:
        _tune_hebb(search, replay)
    if "mixture+cache" in wanted:
        _take_cache(search, "mixture+cache", losses, replay.every)
    for part in ("mbpa", "hebb", "hebb-learned"):
        if f"mixture+{part}" in wanted:
            _take_weight(search, f"mixture+{part}", best[part].losses, replay.every)
    if "mixture-gated" in wanted:
        search.take("mixture-gated", _gated(methods[MixtureConfig].scale, grid.fixed_theta, losses, features))


def _tune_hebb(search: Search, replay: Replay) -> None:
    """Tune Hebb over its grid; then read its losses at the best point and, where they are learned, its weights."""
    before = search.settings.methods
    grid = HebbGrid.of(before[MbpaConfig], before[HebbConfig], search.grid)
    replay.score({}, f"tune {len(grid.points)} points of hebb", [grid], [Mbpa(before[MbpaConfig])])
    search.best["hebb"] = best = BestPoint(fixed=search.fixed)
    best.offer_means(grid.points, grid.means())
    search.check("hebb")
    tuned, learns = search.settings.methods, "hebb-learned" in search.wanted
    losses, terms = HebbLosses(tuned[MbpaConfig], tuned[HebbConfig]), TermObserver(tuned[MbpaConfig], tuned[HebbConfig])
    title = "learn the weights of hebb" if learns else "hebb at its best values"
    replay.score({}, title, [losses, terms] if learns else [losses], [Mbpa(tuned[MbpaConfig])])
    best.losses = losses.losses()
    if learns:
        search.take("hebb-learned", _learned(search, terms.terms()))


def tune_dynamic(search: Search, scenario: Scenario, around: Mapping[str, Any]) -> None:
    """Tune dynamic evaluation, around some values by dotted name or on the whole grid, and what reads its states."""
    grid, wanted, config = search.grid, search.wanted, search.settings.dynamic
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

    search.take(DYNAMIC, _alone(search, scenario, rates, base_of, around))
    if "dynamic+mixture" not in wanted:
        return
    mixtures, shares = _space(search, "dynamic+mixture")
    rules: dict[str, Rule] = {"base": Unadapted()}
    rules |= search.rules("dynamic+mixture", mixtures, gamma=1.0)
    if "dynamic+mixture+hebb" in wanted:
        rules["hebb"] = METHODS["hebb"].build(search.settings.methods)
    if "dynamic+mixture+cache" in wanted:
        rules |= search.rules("cache", points("cache", theta=grid.theta), gamma=1.0)
    replay = Replay.dynamic(scenario, search.settings, squares)
    losses = replay.score(rules, "tune over dynamic evaluation")
    found = _found(losses, "dynamic+mixture", mixtures)
    search.take("dynamic+mixture", _with_gamma("dynamic+mixture", found, losses["base"], shares, replay.every))
    if "dynamic+mixture+hebb" in wanted:
        _take_weight(search, "dynamic+mixture+hebb", losses["hebb"], replay.every)
    if "dynamic+mixture+cache" in wanted:
        _take_cache(search, "dynamic+mixture+cache", losses, replay.every)


def _alone(
    search: Search,
    scenario: Scenario,
    tried: Sequence[Point],
    base_of: Callable[[Hyperparameters], StreamBase],
    around: Mapping[str, Any],
) -> Iterator[tuple[Point, Losses]]:
    """Yield points of a base that learns from the stream, with its losses (T,), reading the text once a point.

    Where values for them are in ``around``, they are those next to these, then those next to the best so far.
    """
    start = {name: search.fixed.get(name, around[name]) for name in tried[0] if name in around}
    left, seen, least = (next_to(tried, start) if start else list(tried)), [], np.inf

    def compute(own: Sequence[int]) -> dict[int, Losses]:
        return {index: losses_of(left[index]) for index in own}

    def losses_of(point: Point) -> Losses:
        settings = search.start.changed(point)
        memory = scenario.empty_memory(settings)
        base = base_of(settings)
        replay = Replay(scenario, base, scenario.context(base, memory, 0), scenario.config.update_every, write=False)
        title = "tune " + ", ".join(f"{name}={value}" for name, value in point.items())
        return replay.read({"base": Unadapted()}, title)["base"]

    while left:
        for point, losses in zip(left, divided(len(left), compute), strict=True):
            yield point, losses
            if losses.mean() < least:
                least, start = losses.mean(), point
        seen += left
        left = [point for point in next_to(tried, start) if point not in seen]


def _space(search: Search, method: str) -> tuple[list[Point], list[float | str]]:
    """Return the points of a method that are read, and the shares gamma that each is tried with; none without one."""
    tried = METHODS[method].tried
    assert tried is not None, f"{method} tries points"
    axes = dict(tried(search.settings.methods, search.grid))
    shares = list(axes.pop("gamma", ()))
    return points(dotted(method), **axes), shares


def _with_gamma(
    method: str, found: Iterable[tuple[Point, Losses]], base: Losses, shares: Iterable[float | str], every: int
) -> Iterator[tuple[Point, Losses]]:
    """Yield the points of a method of whole share, once each gamma, the rest predicted by what has the losses (T,)."""
    return with_shares(found, base, f"{dotted(method)}.gamma", shares, every)


def _found(losses: Mapping[str, Losses], method: str, tried: Iterable[Point]) -> Iterator[tuple[Point, Losses]]:
    """Yield the points whose rules :meth:`Search.rules` made, with their losses (T,), or (C, T) of C memories."""
    for index, point in enumerate(tried):
        rows = [losses[name] for name in named(f"{method} {index}", point)]
        yield point, np.stack(rows) if len(rows) > 1 else rows[0]


def _take_weight(search: Search, method: str, other: Losses, every: int) -> None:
    """Tune the share of Mixture in ``mixture+X`` from the losses (T,) of X."""
    mixture = search.best[method.rpartition("+")[0]].losses
    search.take(method, with_shares([({}, mixture)], other, f"{dotted(method)}.weight", search.grid.weight, every))


def _take_cache(search: Search, method: str, losses: Mapping[str, Losses], every: int) -> None:
    """Tune the cache over Mixture from the losses (T,) of a cache of whole share.

    Before anything was observed, for the first ``every`` tokens, Mixture alone predicts.
    """
    mixture = search.best[method.removesuffix("+cache")].losses
    tried, shares = _space(search, method)
    past = (
        (point, np.where(np.arange(len(mixture)) < every, mixture, alone))
        for point, alone in _found(losses, "cache", tried)
    )
    search.take(method, _with_gamma(method, past, mixture, shares, every))


def _learned(search: Search, terms: Terms) -> Iterator[tuple[Point, Losses]]:
    """Yield the learned weights of Hebb at every eta, with its losses (T,)."""
    hebb = search.settings.methods[HebbConfig]
    for point in points("hebb_learned", eta=search.grid.eta, closeness=[hebb.closeness], scale=[hebb.scale]):
        weights, losses = learn_weights(terms, float(point["hebb_learned.eta"]))
        named = zip(RANGES, weights.tolist(), strict=True)
        yield {**point, **{f"hebb_learned.{name}": weight for name, weight in named}}, losses


def _gated(
    scale: str, thetas: Iterable[float], losses: Mapping[str, Losses], features: GateFeatures
) -> Iterator[tuple[Point, Losses]]:
    """Yield the learned share of Mixture at every theta, with its losses (T,)."""
    for index, theta in enumerate(thetas):
        gate = learn_gate(losses[f"mixture {index}"], losses["lstm"], features.features(theta))
        named = dict(zip(("distance", "entropy", "peak"), gate.coefficients.tolist(), strict=True))
        values = {"scale": scale, "theta": theta, "bias": gate.bias, **named}
        yield {f"mixture_gated.{name}": value for name, value in values.items()}, gate.losses
