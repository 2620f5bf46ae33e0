"""Tuning: every grid over one reading of the validation text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.context import EvalBatch
from hebblm.adapt.rules import Cache, KnnLM, Mbpa, Mixture, Rule, Unadapted
from hebblm.adapt.settings import MbpaConfig
from hebblm.errors import UserError
from hebblm.evaluation.grid import Best, Grid, HebbGrid, Losses, mixed
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import evaluate, evaluate_alone
from hebblm.evaluation.scenario import Scenario
from hebblm.models.dynamic import DynamicBase, DynamicConfig, gradient_mean_squares
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
class _Collect:
    """A rule that scores Hebb grids of one MbPA point on the side and itself predicts like MbPA."""

    mbpa: Mbpa
    grids: tuple[HebbGrid, ...]
    targets: Callable[[], Tensor]
    rows: list[Tensor]

    def log_probs(self, batch: EvalBatch) -> Tensor:
        classes = batch.context.new_classes if self.grids[0].hebb.classes in ("auto", "new") else None
        self.rows.append(torch.cat([grid.losses(batch, self.targets(), classes) for grid in self.grids]))
        return self.mbpa.log_probs(batch)

    def stabilized(self, batch: EvalBatch) -> Tensor:
        return self.mbpa.stabilized(batch)


def tune(scenario: Scenario, settings: Hyperparameters, grid: Grid, *, dynamic: bool = True) -> Tuned:
    """Return the best hyper-parameters of every method on the scenario's stream.

    The base's states, the neighbours and each MbPA solution are computed once and serve every grid point: shares are
    mixed from losses, and Hebb's grid is read off the neighbours' labels. Hebb takes over MbPA's best values, and the
    combinations those of their parts, as in the paper.

    Args:
        scenario: opened on a validation split, with the union vocabulary.
        settings: what is not tuned.
        grid: values that are tried.
        dynamic: tune dynamic evaluation as well, which reads the text once a point.

    Raises:
        UserError: Hebb's literal gate, which changes every class and cannot be read off the neighbours.
    """
    if settings.methods.hebb.gate != "gated":
        raise UserError(f"hebb.gate={settings.methods.hebb.gate} cannot be tuned; tune with gated")
    best: dict[str, Best] = {}
    if scenario.kind == "cross-domain":
        best["base"] = _tune_base(scenario, settings, grid)
        settings = settings.changed(best["base"].values)
    losses, hebb = _pass(scenario, settings, grid)
    base = losses["lstm"]
    best["lstm"] = Best(float(base.mean()), {}, base)
    for method, key, values in (
        ("mixture", "theta", grid.theta),
        ("cache", "theta", grid.theta),
        ("knn", "temperature", grid.temperature),
    ):
        best[method] = Best()
        for value in values:
            for gamma in grid.gamma:
                point = {f"{method}.{key}": value, f"{method}.gamma": gamma}
                best[method].offer(mixed(losses[f"{method} {value}"], base, gamma), point)
    best["mbpa"], best["hebb"] = Best(), Best()
    for lr in grid.mbpa_lr:
        for steps in grid.mbpa_steps:
            best["mbpa"].offer(losses[f"mbpa {lr} {steps}"], {"mbpa.lr": lr, "mbpa.steps": steps})
    mbpa = best["mbpa"].values
    table = iter(hebb[float(mbpa["mbpa.lr"]), int(mbpa["mbpa.steps"])])
    for scaled in _hebb_grids(settings, grid, settings.methods.mbpa):
        for beta, eta in scaled.points():
            best["hebb"].offer(
                next(table), {"hebb.closeness": scaled.hebb.closeness, "hebb.beta": beta, "hebb.eta": eta}
            )
    for part in ("mbpa", "hebb"):
        best[f"mixture+{part}"] = Best()
        for weight in grid.weight:
            point = {f"mixture_{part}.weight": weight}
            best[f"mixture+{part}"].offer(mixed(best["mixture"].losses, best[part].losses, weight), point)
    if dynamic:
        best["dynamic"] = _tune_dynamic(scenario, settings, grid)
    chosen = {name: value for found in best.values() for name, value in found.values.items()}
    return Tuned(chosen, best)


def _hebb_grids(settings: Hyperparameters, grid: Grid, mbpa: MbpaConfig) -> tuple[HebbGrid, ...]:
    """Return the Hebb grid of each closeness, beside one MbPA point."""
    hebb = settings.methods.hebb
    return tuple(
        HebbGrid(mbpa, replace(hebb, closeness=closeness), grid.beta, grid.eta)
        for closeness in grid.closeness
    )


def _pass(
    scenario: Scenario, settings: Hyperparameters, grid: Grid
) -> tuple[dict[str, Losses], dict[tuple[float, int], Losses]]:
    """Read the text once; return losses (T,) by grid point, and of the Hebb grids (P, T) by MbPA point."""
    methods, stream = settings.methods, scenario.stream
    targets = torch.from_numpy(stream.targets).to(scenario.device)
    done = 0

    rules: dict[str, Rule] = {"lstm": Unadapted()}
    for theta in grid.theta:
        rules[f"mixture {theta}"] = Mixture(replace(methods.mixture, theta=theta, gamma=1.0))
        rules[f"cache {theta}"] = Cache(replace(methods.cache, theta=theta, gamma=1.0))
    for temperature in grid.temperature:
        rules[f"knn {temperature}"] = KnnLM(replace(methods.knn, temperature=temperature, gamma=1.0))
    collected: dict[tuple[float, int], list[Tensor]] = {}
    width = scenario.config.update_every
    for lr in grid.mbpa_lr:
        for steps in grid.mbpa_steps:
            rows = collected.setdefault((lr, steps), [])
            present = lambda: targets[done : done + width]  # noqa: E731
            mbpa = replace(methods.mbpa, lr=lr, steps=steps)
            rules[f"mbpa {lr} {steps}"] = _Collect(
                Mbpa(mbpa), _hebb_grids(settings, grid, mbpa), present, rows
            )
    base = scenario.base(settings)
    context = scenario.context(base, scenario.memory(settings), methods.cache.window)
    with bar() as progress:
        points = len(rules) + len(collected) * len(grid.closeness) * len(grid.beta) * len(grid.eta)
        task = progress.add_task(f"tune {points} points", total=len(stream), unit="tokens")

        def advance(tokens: int) -> None:
            nonlocal done
            done += tokens
            progress.advance(task, tokens)

        scores = evaluate(
            base,
            context,
            rules,
            stream,
            scenario.vocabulary,
            update_every=width,
            write=scenario.config.memory_content != "train",
            read_ahead=not base.moving,
            progress=advance,
        )
    losses = {name: nll.astype(np.float64) for name, nll in scores.nll.items()}
    return losses, {key: torch.cat(rows, 1).double().cpu().numpy() for key, rows in collected.items()}


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


def _tune_dynamic(scenario: Scenario, settings: Hyperparameters, grid: Grid) -> Best:
    """Return the best rate and decay of dynamic evaluation."""
    best, config = Best(), settings.dynamic
    model = scenario.model.model
    squares = gradient_mean_squares(model, scenario.training_ids(), config) if config.rule == "rms" else None
    points = [(lr, decay) for lr in grid.dynamic_lr for decay in grid.dynamic_decay]
    with bar() as progress:
        task = progress.add_task(
            "tune dynamic evaluation", total=len(points) * len(scenario.stream), unit="tokens"
        )
        for lr, decay in points:
            point: DynamicConfig = replace(config, lr=lr, decay=decay)
            base = DynamicBase(model, point, squares, rows=scenario.novel_rows, init=scenario.config.new_rows)
            nll, _ = evaluate_alone(
                base,
                scenario.stream,
                scenario.vocabulary,
                segment=config.segment,
                progress=lambda tokens: progress.advance(task, tokens),
            )
            best.offer(nll.astype(np.float64), {"dynamic.lr": lr, "dynamic.decay": decay})
    return best
