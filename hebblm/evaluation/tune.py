"""Tuning: every grid over one reading of the validation text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt import OUR_METHODS, RULES, MethodSettings, MixtureCacheConfig
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.learned import RANGES
from hebblm.adapt.methods import mixture_cache
from hebblm.adapt.rules import Cache, KnnLM, Mbpa, Mixture, Rule, Unadapted
from hebblm.adapt.safeguards import Safeguards
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
    """A rule that writes the losses of Hebb's grids to a table and itself predicts like their MbPA."""

    grids: tuple[HebbGrid, ...]
    table: LossTable

    @property
    def mbpa(self) -> Mbpa:
        return Mbpa(self.grids[0].mbpa)

    def log_probs(self, batch: EvalBatch) -> Tensor:
        return self.mbpa.log_probs(batch)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        classes = batch.context.new_classes if self.grids[0].hebb.classes in ("auto", "new") else None
        losses = torch.cat([grid.losses(batch, targets, classes) for grid in self.grids])  # (P, N)
        self.table.append(losses.float().cpu().numpy())
        return self.mbpa.score(batch, targets)

    def safeguards(self, batch: EvalBatch) -> Safeguards:
        return self.mbpa.safeguards(batch)


def tune(
    scenario: Scenario,
    settings: Hyperparameters,
    grid: Grid,
    *,
    dynamic: bool = True,
    fixed: Mapping[str, float | str] | None = None,
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

    Raises:
        UserError: a fixed value that is not among those tried.
        UserError: Hebb's literal gate, which changes every class and cannot be read off the neighbours.
    """
    if settings.methods.hebb.gate != "gated":
        raise UserError(f"hebb.gate={settings.methods.hebb.gate} cannot be tuned; tune with gated")
    best: dict[str, Best] = {}
    fixed = fixed or {}
    if scenario.kind == "cross-domain" and settings.base.lr > 0:
        best["base"] = _tune_base(scenario, settings, grid)
        settings = settings.changed(best["base"].values)
    reading = Rereading.of(scenario, settings)
    methods = settings.methods
    rules, features = _grid_rules(settings, grid), GateFeatures.of(grid.theta, methods.mixture.scale)
    nll = reading.score({**rules, "features": features}, f"tune {len(rules)} points")

    def losses(name: str) -> Losses:
        return nll[name].astype(np.float64)

    base = losses("lstm")
    best["lstm"] = Best(float(base.mean()), {}, base)
    for method, key, values, scale in (
        ("mixture", "theta", grid.theta, methods.mixture.scale),
        ("cache", "theta", grid.theta, methods.cache.scale),
        ("knn", "temperature", grid.temperature, methods.knn.scale),
    ):
        best[method] = Best(fixed=fixed)
        for value in values:
            memory = losses(f"{method} {value}")
            for gamma in grid.gamma:
                named = {"scale": scale, key: value, "gamma": gamma}
                point = {f"{method}.{name}": chosen for name, chosen in named.items()}
                best[method].offer(mixed(memory, base, gamma), point)
    best["mbpa"] = Best(fixed=fixed)
    for lr in grid.mbpa_lr:
        for steps in grid.mbpa_steps:
            best["mbpa"].offer(losses(f"mbpa {lr} {steps}"), {"mbpa.lr": lr, "mbpa.steps": steps})
    for name, config in (("absolute", methods.mbpa_absolute), ("guarded", methods.mbpa_guarded)):
        best[f"mbpa-{name}"] = Best(fixed=fixed)
        for lr in grid.absolute_lr:
            point = {f"{config.section}.lr": lr, f"{config.section}.steps": config.steps}
            best[f"mbpa-{name}"].offer(losses(f"mbpa-{name} {lr}"), point)
    _check_fixed(best, fixed)  # before anything is built on these
    known = settings.changed({**best["mixture"].values, **best["mbpa"].values})
    best["hebb"], over = _tune_hebb(reading, known, grid, _caches_over_mixture(known.methods, grid), fixed)
    best["mixture+cache"] = Best(fixed=fixed)
    for theta in grid.theta:
        for gamma in grid.gamma:
            named = {
                "window": methods.cache.window,
                "scale": methods.cache.scale,
                "theta": theta,
                "gamma": gamma,
            }
            best["mixture+cache"].offer(
                mixed(over[f"{theta}"].astype(np.float64), best["mixture"].losses, gamma),
                {f"mixture_cache.{name}": value for name, value in named.items()},
            )
    for part in ("mbpa", "hebb"):
        best[f"mixture+{part}"] = Best(fixed=fixed)
        for weight in grid.weight:
            point = {f"mixture_{part}.weight": weight}
            best[f"mixture+{part}"].offer(mixed(best["mixture"].losses, best[part].losses, weight), point)
    best["hebb-learned"] = _learn_hebb(reading, settings.changed(_values(best)), grid, fixed)
    best["mixture+hebb-learned"] = Best(fixed=fixed)
    for weight in grid.weight:
        best["mixture+hebb-learned"].offer(
            mixed(best["mixture"].losses, best["hebb-learned"].losses, weight),
            {"mixture_hebb_learned.weight": weight},
        )
    best["mixture-gated"] = Best(fixed=fixed)
    for theta in grid.theta:
        learned = learn_gate(losses(f"mixture {theta}"), base, features.features(theta))
        gate = {"scale": methods.mixture.scale, "theta": theta, "bias": learned.bias}
        gate |= dict(zip(("distance", "entropy", "peak"), learned.coefficients.tolist(), strict=True))
        best["mixture-gated"].offer(
            learned.losses, {f"mixture_gated.{name}": value for name, value in gate.items()}
        )
    temper(
        best,
        [name for name in OUR_METHODS if name in RULES],
        settings.changed(_values(best)),
        grid.tempered,
        reading.score,
    )
    if dynamic:
        del reading  # its memory goes before another one is opened
        best |= tune_dynamic(scenario, settings.changed(_values(best)), grid)
    _check_fixed(best, fixed)
    return Tuned(_values(best), best)


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


def _grid_rules(settings: Hyperparameters, grid: Grid) -> dict[str, Rule]:
    """Return a rule for every point but shares, which are mixed from losses, and Hebb's."""
    methods = settings.methods
    rules: dict[str, Rule] = {"lstm": Unadapted()}
    for theta in grid.theta:
        rules[f"mixture {theta}"] = Mixture(replace(methods.mixture, theta=theta, gamma=1.0))
        rules[f"cache {theta}"] = Cache(replace(methods.cache, theta=theta, gamma=1.0))
    for temperature in grid.temperature:
        rules[f"knn {temperature}"] = KnnLM(replace(methods.knn, temperature=temperature, gamma=1.0))
    for lr in grid.mbpa_lr:
        for steps in grid.mbpa_steps:
            rules[f"mbpa {lr} {steps}"] = Mbpa(replace(methods.mbpa, lr=lr, steps=steps))
    for name, config in (("absolute", methods.mbpa_absolute), ("guarded", methods.mbpa_guarded)):
        for lr in grid.absolute_lr:
            rules[f"mbpa-{name} {lr}"] = Mbpa(replace(config, lr=lr).over(methods.mbpa))
    return rules


def _caches_over_mixture(methods: MethodSettings, grid: Grid) -> dict[str, Rule]:
    """Return the cache over Mixture, of whole share, at every sharpness; window and scale are the cache's."""
    window, scale = methods.cache.window, methods.cache.scale
    return {
        f"{theta}": mixture_cache(
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
    rules = {**beside, "hebb": _HebbPoints(grids, table)}
    nll = reading.score(rules, f"tune {len(points)} points of hebb")
    best.offer_table(table, points)
    return best, nll


def _learn_hebb(
    reading: Rereading, settings: Hyperparameters, grid: Grid, fixed: Mapping[str, float | str]
) -> Best:
    """Return the best learned weights of Hebb over all eta, beside the MbPA and the closeness of ``settings``."""
    methods, best = settings.methods, Best(fixed=fixed)
    listener = TermsOf(methods.mbpa, methods.hebb)
    reading.score({"terms": listener}, "learn the weights of hebb")
    terms = listener.terms()
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
