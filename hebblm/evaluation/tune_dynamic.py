"""Tuning dynamic evaluation, and the methods that read its moving states."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hebblm.adapt import DYNAMIC, DYNAMIC_METHODS, METHODS, OUR_METHODS, Hebb, Rule
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.adapt.methods.remembering import remembering
from hebblm.evaluation.grid import Best, Grid, mixed
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Observer, evaluate, evaluate_alone
from hebblm.evaluation.losses import Losses
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.tempering import temper
from hebblm.progress import bar


def tune_dynamic(
    scenario: Scenario, settings: Hyperparameters, grid: Grid, wanted: Collection[str] = METHODS
) -> dict[str, Best]:
    """Return the best points of dynamic evaluation, then of Mixture, Mixture+Hebb and Mixture+Cache over its states.

    Args:
        scenario: opened on a validation split.
        settings: what is not tuned here, Hebb's and MbPA's values among it.
        grid: values that are tried.
        wanted: the methods that are asked for.
    """
    squares = gradient_statistics(scenario, settings.dynamic)
    best = {"dynamic": Best()}
    points = [(lr, decay) for lr in grid.dynamic_lr for decay in grid.dynamic_decay]
    with bar() as progress:
        task = progress.add_task(
            "tune dynamic evaluation", total=len(points) * len(scenario.stream), unit="tokens"
        )
        for lr, decay in points:
            nll, _ = evaluate_alone(
                dynamic_base(scenario, replace(settings.dynamic, lr=lr, decay=decay), squares),
                scenario.stream,
                scenario.vocabulary,
                segment=settings.dynamic.segment,
                progress=lambda tokens: progress.advance(task, tokens),
            )
            best["dynamic"].offer(nll.astype(np.float64), {"dynamic.lr": lr, "dynamic.decay": decay})
    if not any(name in wanted for name in DYNAMIC_METHODS if name != DYNAMIC):
        return best
    settings = settings.changed(best["dynamic"].values)
    methods, window = settings.methods, settings.methods.cache.window
    every = settings.dynamic.segment
    rules: dict[str, Rule] = {
        "base": Unadapted(), "hebb": Hebb(methods.hebb, methods.mbpa)
    }  # fmt: skip
    for theta in grid.theta:
        mixture, cache = (
            MixtureConfig(theta, 1.0, scale=methods.mixture.scale),
            CacheConfig(window, theta, 1.0, methods.cache.scale),
        )
        rules[f"mixture {theta}"] = remembering(Mixture, mixture, Unadapted())
        rules[f"cache {theta}"] = remembering(Cache, cache, Unadapted())
    base = dynamic_base(scenario, settings.dynamic, squares)
    context = scenario.context(base, scenario.memory(settings), window)

    def read(
        title: str, observers: Sequence[Observer] = (), rules: Mapping[str, Rule] | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        base.reset()
        context.reset()
        context.set_head(base.head)
        with bar() as progress:
            task = progress.add_task(title, total=len(scenario.stream), unit="tokens")
            return evaluate(
                base,
                context,
                rules or {},
                scenario.stream,
                scenario.vocabulary,
                update_every=settings.dynamic.segment,
                write=scenario.config.memory_content != "train",
                observers=observers,
                progress=lambda tokens: progress.advance(task, tokens),
            ).nll

    nll_of = read("tune over dynamic evaluation", rules=rules)
    losses: dict[str, Losses] = {name: nll.astype(np.float64) for name, nll in nll_of.items()}
    best["dynamic+mixture"] = over = Best()
    for theta in grid.theta:
        for gamma in grid.gamma:
            named = {"scale": methods.mixture.scale, "theta": theta, "gamma": gamma}
            point = {f"dynamic_mixture.{name}": value for name, value in named.items()}
            over.offer(mixed(losses[f"mixture {theta}"], losses["base"], gamma, every), point)
    best["dynamic+mixture+hebb"] = both = Best()
    for weight in grid.weight:
        both.offer(mixed(over.losses, losses["hebb"], weight, every), {"dynamic_mixture_hebb.weight": weight})
    best["dynamic+mixture+cache"] = cached = Best()
    for theta in grid.theta:
        past = losses[f"cache {theta}"]
        first = slice(settings.dynamic.segment)  # nothing was observed before: Mixture alone predicts
        past[first] = over.losses[first]
        for gamma in grid.gamma:
            named = {"window": window, "scale": methods.cache.scale, "theta": theta, "gamma": gamma}
            cached.offer(
                mixed(past, over.losses, gamma, every),
                {f"dynamic_mixture_cache.{name}": value for name, value in named.items()},
            )
    best = {name: point for name, point in best.items() if name in wanted}
    found = {name: value for point in best.values() for name, value in point.values.items()}
    names = [name for name in OUR_METHODS if name in DYNAMIC_METHODS and name in wanted]
    temper(
        best,
        names,
        settings.changed(found),
        grid.tempered,
        context,
        lambda observers, title: read(title, observers),
    )
    return best
