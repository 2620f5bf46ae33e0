"""Tuning: every grid over one reading of the validation text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt import DYNAMIC, OUR_METHODS, STATIC_METHODS, MethodSettings, MixtureCacheConfig
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.methods import METHODS, TUNABLE, with_parts
from hebblm.adapt.methods.cache import Cache
from hebblm.adapt.methods.hebb import RANGES
from hebblm.adapt.methods.knn import KnnLM
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa
from hebblm.adapt.methods.mixture import Mixture
from hebblm.adapt.methods.remembering import remembering
from hebblm.adapt.methods.rule import Rule, dotted
from hebblm.errors import UserError
from hebblm.evaluation.count_weights import TermsOf, learn_weights
from hebblm.evaluation.gate import GateFeatures, learn_gate
from hebblm.evaluation.grid import Best, Grid, HebbGrid, mixed
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import evaluate_alone
from hebblm.evaluation.losses import Losses, LossTable
from hebblm.evaluation.rereading import Rereading
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.tempering import temper
from hebblm.evaluation.tune_dynamic import tune_dynamic
from hebblm.progress import bar


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found.

    Args:
        values: the best value by dotted name.
        best: by method, its best point.
    """

    values: dict[str, float | str]
    best: dict[str, Best]


@dataclass(frozen=True, slots=True)
class _HebbPoints:
    """An observer that writes the losses of Hebb's grids to a table."""

    grids: tuple[HebbGrid, ...]
    table: LossTable

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        classes = batch.context.new_classes if self.grids[0].hebb.classes in ("auto", "new") else None
        losses = torch.cat([grid.losses(batch, targets, classes) for grid in self.grids])  # (P, N)
        self.table.append(losses.float().cpu().numpy())


def tune(
    scenario: Scenario,
    settings: Hyperparameters,
    grid: Grid,
    *,
    dynamic: bool = True,
    fixed: Mapping[str, float | str] | None = None,
    methods: Iterable[str] = TUNABLE,
) -> Tuned:
    """Return the best hyper-parameters of every method on the scenario's stream.

    The share of Mixture-gated is learned from the losses of its two parts (:mod:`hebblm.evaluation.gate`), the weights
    of Hebb-learned from the labels that have a Hebbian term (:mod:`hebblm.evaluation.count_weights`).

    The states of a fixed base and the neighbours are computed once for all points, and kept in the cache for the next
    time (:mod:`hebblm.evaluation.sweep`). The text is then gone through four times: for every method but Hebb, whose
    shares are mixed from losses; for Hebb's grid beside MbPA's best values, read off the neighbours' labels, and the
    cache over Mixture; for what the learned weights depend on; and for the temperatures of the methods beyond the
    paper, whose own stay as published. The combinations take over the best values of their parts, as in the paper.

    Args:
        scenario: opened on a validation split, with the union vocabulary.
        settings: what is not tuned.
        grid: values that are tried.
        dynamic: tune dynamic evaluation and what reads its states as well, which reads the text once a point.
        fixed: values by dotted name that are taken as they are; the other points are tried all the same.
        methods: only these are tuned, and what they rest on.

    Raises:
        UserError: a fixed value that is not among those tried.
        UserError: Hebb's literal gate, which changes every class and cannot be read off the neighbours.
    """
    if settings.methods.hebb.gate != "gated":
        raise UserError(f"hebb.gate={settings.methods.hebb.gate} cannot be tuned; tune with gated")
    best: dict[str, Best] = {}
    fixed = fixed or {}
    wanted = with_parts(methods)
    if scenario.kind == "cross-domain" and settings.base.lr > 0:
        best["base"] = _tune_base(scenario, settings, grid)
        settings = settings.changed(best["base"].values)
    reading = Rereading.of(scenario, settings)
    features = GateFeatures.of(grid.fixed_theta, settings.methods.mixture.scale)
    rules = _grid_rules(settings, grid, wanted)
    observers = [features] if "mixture-gated" in wanted else []
    nll = reading.score(rules, f"tune {len(rules)} points", observers)

    def losses(name: str) -> Losses:
        return nll[name].astype(np.float64)

    every = scenario.config.update_every
    best |= _read_off(settings.methods, grid, losses, wanted, fixed, every)
    _check_fixed(best, fixed)  # before anything is built on these
    best |= _tune_built(reading, settings.changed(_values(best)), grid, best, wanted, fixed)
    if "mixture-gated" in wanted:
        best["mixture-gated"] = _learn_gate(settings.methods, grid, losses, features, fixed)
    temper(
        best,
        [name for name in OUR_METHODS if name in STATIC_METHODS and name in wanted],
        settings.changed(_values(best)),
        grid.tempered,
        reading.context,
        lambda observers, title: reading.score({}, title, observers),
    )
    if dynamic and any(name.startswith(DYNAMIC) for name in wanted):
        del reading  # its memory goes before another one is opened
        best |= tune_dynamic(scenario, settings.changed(_values(best)), grid, wanted)
    _check_fixed(best, fixed)
    return Tuned(_values(best), best)


def _read_off(
    methods: MethodSettings,
    grid: Grid,
    losses: Callable[[str], Losses],
    wanted: Collection[str],
    fixed: Mapping[str, float | str],
    every: int,
) -> dict[str, Best]:
    """Return the best points of the methods that rest on no other, from the losses of every rule of the grid."""
    base = losses("lstm")
    best = {"lstm": Best(float(base.mean()), {}, base)}
    for method, key, values, scale in (
        ("mixture", "theta", grid.theta, methods.mixture.scale),
        ("cache", "theta", grid.theta, methods.cache.scale),
        ("knn", "temperature", grid.temperature, methods.knn.scale),
    ):
        if method not in wanted:
            continue
        best[method] = Best(fixed=fixed)
        for value in values:
            memory = losses(f"{method} {value}")
            for gamma in grid.gamma:
                named = {"scale": scale, key: value, "gamma": gamma}
                point = {f"{method}.{name}": chosen for name, chosen in named.items()}
                best[method].offer(mixed(memory, base, gamma, every), point)
    if "mbpa" in wanted:
        best["mbpa"] = Best(fixed=fixed)
        for lr in grid.mbpa_lr:
            for steps in grid.mbpa_steps:
                best["mbpa"].offer(losses(f"mbpa {lr} {steps}"), {"mbpa.lr": lr, "mbpa.steps": steps})
    for name, config in (
        ("mbpa-absolute", methods.mbpa_absolute),
        ("mbpa-guarded", methods.mbpa_guarded),
    ):
        if name not in wanted:
            continue
        best[name] = Best(fixed=fixed)
        for lr in grid.absolute_lr:
            absolute = {f"{config.section}.lr": lr, f"{config.section}.steps": config.steps}
            best[name].offer(losses(f"{name} {lr}"), absolute)
    return best


def _tune_built(
    reading: Rereading,
    known: Hyperparameters,
    grid: Grid,
    parts: Mapping[str, Best],
    wanted: Collection[str],
    fixed: Mapping[str, float | str],
) -> dict[str, Best]:
    """Return the best points of the methods built on others, whose best values ``known`` has."""
    best: dict[str, Best] = {}
    every = reading.scenario.config.update_every
    cached = "mixture+cache" in wanted
    caches = _caches_over_mixture(known.methods, grid) if cached else {}
    over: Mapping[str, npt.NDArray[np.float32]] = {}
    if "hebb" in wanted:
        best["hebb"], over = _tune_hebb(reading, known, grid, caches, fixed)
    elif cached:
        over = reading.score(caches, "tune mixture+cache")
    if cached:
        best["mixture+cache"] = Best(fixed=fixed)
        for theta in grid.theta:
            for gamma in grid.gamma:
                named = {
                    "window": known.methods.cache.window,
                    "scale": known.methods.cache.scale,
                    "theta": theta,
                    "gamma": gamma,
                }
                best["mixture+cache"].offer(
                    mixed(over[f"{theta}"].astype(np.float64), parts["mixture"].losses, gamma, every),
                    {f"mixture_cache.{name}": value for name, value in named.items()},
                )
    if "hebb-learned" in wanted:
        best["hebb-learned"] = _learn_hebb(reading, known.changed(_values(best)), grid, fixed)
    for part in ("mbpa", "hebb", "hebb-learned"):
        if f"mixture+{part}" not in wanted:
            continue
        both = best[f"mixture+{part}"] = Best(fixed=fixed)
        for weight in grid.weight:
            both.offer(
                mixed(parts["mixture"].losses, {**parts, **best}[part].losses, weight, every),
                {f"{dotted(f'mixture+{part}')}.weight": weight},
            )
    return best


def _learn_gate(
    methods: MethodSettings,
    grid: Grid,
    losses: Callable[[str], Losses],
    features: GateFeatures,
    fixed: Mapping[str, float | str],
) -> Best:
    """Return the best learned share of Mixture over all theta."""
    best = Best(fixed=fixed)
    for theta in grid.fixed_theta:
        learned = learn_gate(losses(f"mixture {theta}"), losses("lstm"), features.features(theta))
        gate = {"scale": methods.mixture.scale, "theta": theta, "bias": learned.bias}
        gate |= dict(zip(("distance", "entropy", "peak"), learned.coefficients.tolist(), strict=True))
        best.offer(learned.losses, {f"mixture_gated.{name}": value for name, value in gate.items()})
    return best


def _check_fixed(best: Mapping[str, Best], fixed: Mapping[str, float | str]) -> None:
    """Refuse fixed values that no point of a method has.

    Raises:
        UserError: naming them.
    """
    for name, found in best.items():
        if found.tried and not found.values:
            wanted = ", ".join(f"{key}={value}" for key, value in fixed.items() if key in found.tried[0])
            raise UserError(f"{wanted} is not among the values that are tried for {name}; fix one that is")


def _values(best: Mapping[str, Best]) -> dict[str, float | str]:
    """Return the best values of all methods by dotted name."""
    return {name: value for found in best.values() for name, value in found.values.items()}


def _grid_rules(settings: Hyperparameters, grid: Grid, wanted: Collection[str]) -> dict[str, Rule]:
    """Return a rule for every point but shares, which are mixed from losses, and what is built on other methods."""
    methods = settings.methods
    base = Unadapted()
    rules: dict[str, Rule] = {"lstm": base}
    for theta in grid.theta:
        if "mixture" in wanted or "mixture-gated" in wanted:
            mixture = replace(methods.mixture, theta=theta, gamma=1.0, form="linear")
            rules[f"mixture {theta}"] = remembering(Mixture, mixture, base)
        if "cache" in wanted:
            rules[f"cache {theta}"] = remembering(Cache, replace(methods.cache, theta=theta, gamma=1.0), base)
    if "knn" in wanted:
        for temperature in grid.temperature:
            knn = replace(methods.knn, temperature=temperature, gamma=1.0)
            rules[f"knn {temperature}"] = remembering(KnnLM, knn, base)
    if "mbpa" in wanted:
        for lr in grid.mbpa_lr:
            for steps in grid.mbpa_steps:
                rules[f"mbpa {lr} {steps}"] = Mbpa(replace(methods.mbpa, lr=lr, steps=steps))
    for name, config in (
        ("mbpa-absolute", methods.mbpa_absolute),
        ("mbpa-guarded", methods.mbpa_guarded),
    ):
        if name in wanted:
            for lr in grid.absolute_lr:
                rules[f"{name} {lr}"] = Mbpa(replace(config, lr=lr).over(methods.mbpa))
    return rules


def _caches_over_mixture(methods: MethodSettings, grid: Grid) -> dict[str, Rule]:
    """Return the cache over Mixture, of whole share, at every sharpness; window and scale are the cache's."""
    window, scale = methods.cache.window, methods.cache.scale
    return {
        f"{theta}": METHODS["mixture+cache"].build(
            replace(methods, mixture_cache=MixtureCacheConfig(window, theta, 1.0, scale))
        )
        for theta in grid.theta
    }


def _tune_hebb(
    reading: Rereading,
    settings: Hyperparameters,
    grid: Grid,
    beside: Mapping[str, Rule],
    fixed: Mapping[str, float | str],
) -> tuple[Best, dict[str, npt.NDArray[np.float32]]]:
    """Return Hebb's best point with the MbPA of ``settings``, and the losses of what is read beside it."""
    grids = tuple(
        HebbGrid(
            settings.methods.mbpa, replace(settings.methods.hebb, closeness=closeness), grid.beta, grid.eta
        )
        for closeness in grid.closeness
    )
    points = [
        {
            "hebb.scale": scaled.hebb.scale,
            "hebb.closeness": scaled.hebb.closeness,
            "hebb.beta": beta,
            "hebb.eta": eta,
        }
        for scaled in grids
        for beta, eta in scaled.points()
    ]
    table, best = LossTable(len(points)), Best(fixed=fixed)
    nll = reading.score(beside, f"tune {len(points)} points of hebb", [_HebbPoints(grids, table)])
    best.offer_table(table, points)
    return best, nll


def _learn_hebb(
    reading: Rereading, settings: Hyperparameters, grid: Grid, fixed: Mapping[str, float | str]
) -> Best:
    """Return the best learned weights of Hebb over all eta, beside the MbPA and the closeness of ``settings``."""
    methods, best = settings.methods, Best(fixed=fixed)
    noted = TermsOf(methods.mbpa, methods.hebb)
    reading.score({}, "learn the weights of hebb", [noted])
    terms = noted.terms()
    for eta in grid.eta:
        learned = learn_weights(terms, eta)
        point: dict[str, float | str] = {
            "eta": eta, "closeness": methods.hebb.closeness, "scale": methods.hebb.scale
        }  # fmt: skip
        point |= dict(zip(RANGES, learned.steps, strict=True))
        best.offer(learned.losses, {f"hebb_learned.{name}": value for name, value in point.items()})
    return best


def _tune_base(scenario: Scenario, settings: Hyperparameters, grid: Grid) -> Best:
    """Return the rate at which the base itself should learn from the stream."""
    best = Best()
    with bar() as progress:
        task = progress.add_task(
            "tune the base", total=len(grid.base_lr) * len(scenario.stream), unit="tokens"
        )
        for lr in grid.base_lr:
            base = scenario.base(settings.changed({"base.lr": lr}))
            nll, _ = evaluate_alone(
                base,
                scenario.stream,
                scenario.vocabulary,
                segment=scenario.config.update_every,
                progress=lambda tokens: progress.advance(task, tokens),
            )
            best.offer(nll.astype(np.float64), {"base.lr": lr})
    return best
