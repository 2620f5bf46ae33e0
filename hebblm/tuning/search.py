"""Search for hyper-parameters: the points tried so far, and the files they end in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hebblm.adapt.grid import Axes, Grid
from hebblm.adapt.methods import METHODS, with_parts
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.memory_mixture import ONLINE_VALUES
from hebblm.adapt.methods.predictor import Predictor, dotted
from hebblm.adapt.settings import ONLINE
from hebblm.errors import UserError
from hebblm.evaluation.defaults import TUNED_SCHEMA
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.scenario import Scenario
from hebblm.io.files import write_json
from hebblm.io.locks import file_lock
from hebblm.models.update import MEASURED
from hebblm.report.result.record import encode
from hebblm.tuning.points import BestPoint, Losses, Point
from hebblm.tuning.replay import describe

TUNED_FILE = "tuned.json"


@dataclass(slots=True)
class Search:
    """The best points found so far."""

    start: Hyperparameters  # what is not tuned
    grid: Grid  # values that are tried
    wanted: set[str]  # the methods that are tuned
    fixed: Mapping[str, float | str]  # values by dotted name that are taken as they are
    best: dict[str, BestPoint] = field(default_factory=dict)  # by method, its best point
    usual: dict[str, Any] = field(default_factory=defaults)  # the default values of this model
    # bits a byte from the mean loss in nats a piece; None where tokens are words
    bits_per_byte: Callable[[float], float] | None = None

    def note_rate(self, lr: float) -> None:
        """Make the rate measured on the model the default of dynamic evaluation."""
        if self.start.dynamic.lr == MEASURED:
            self.usual["dynamic.lr"] = lr
            self.start = self.start.changed({"dynamic.lr": lr})

    @property
    def values(self) -> Point:
        values: Point = {}
        for best in self.best.values():
            values |= best.values
        return values

    @property
    def settings(self) -> Hyperparameters:
        """Hyper-parameters with the best values of those tuned."""
        return self.start.changed(self.values)

    @property
    def at_end(self) -> list[str]:
        """The best values, by dotted name, that are the least or the largest tried: better ones may
        lie beyond.
        """
        names = []
        for best in self.best.values():
            for name in best.values.keys() - self.fixed.keys():
                values = [point[name] for point in best.tried]
                tried = {value for value in values if isinstance(value, int | float)}
                if len(tried) > 1 and best.values[name] in (min(tried), max(tried)):
                    names.append(name)
        return sorted(names)

    def default_loss(self, method: str) -> float | None:
        """Return the loss of a method's default values on the same text, nats a token; None if they
        were not tried.

        The points of a combination are tried with the best values of its parts, so these must be
        the defaults too. Values that the method does not read do not matter.
        """
        usual = self.usual
        record = METHODS[method]
        # 1) The parts of a combination are at their defaults.
        for part in with_parts([method]) - {method}:
            if part in self.best:
                for name, value in self.best[part].values.items():
                    if usual[name] != value:
                        return None

        # 2) So is everything else that the method reads.
        read = {kind.section for kind in record.settings}
        read.add("dynamic" if record.uses_dynamic_base else "base")
        if record.predictor(self.start.methods).requirements.retrieval:
            read.add("memory")
        for name, value in usual.items():
            if name.partition(".")[0] in read and self.start.of(name) != value:
                return None

        # 3) Among the points that were tried, that of the defaults.
        for point in self.best[method].tried:
            if all(usual[name] == value for name, value in point.items() if name != "nll"):
                return float(point["nll"])
        return None

    def take(self, method: str, tried: Iterable[tuple[Point, Losses]]) -> None:
        """Record the best of some points of a method, given with their losses (T,), nats."""
        self.best[method] = best = BestPoint(fixed=self.fixed)
        for values, losses in tried:
            best.offer(values, losses)
        self.check(method)

    def check(self, method: str) -> None:
        """Refuse fixed values that no point of a method has, and points without a finite loss."""
        best = self.best[method]
        if not best.values:
            for point in best.tried:
                if all(point.get(name, value) == value for name, value in self.fixed.items()):
                    if method in METHODS:
                        rates = METHODS[method].rates(self.start.methods)
                    else:
                        rates = f"{method}.lr"
                    raise UserError(
                        f"{method}: no point that was tried has a finite loss; lower {rates} "
                        "in `settings`, or leave the method out of `methods`"
                    )
            wanted = ", ".join(
                f"{key}={value}" for key, value in self.fixed.items() if key in best.tried[0]
            )
            raise UserError(
                f"{wanted} is not a value that tuning tries for {method}; choose one that it tries"
            )

    def check_fixed(self) -> None:
        """Refuse fixed values that no point of a method will have, before anything is read."""
        grid = self.grid
        by_method: dict[str, Axes] = {
            "hebb": {"kernel_weight": grid.kernel_weight, "beta": grid.beta, "eta": grid.eta},
            "dynamic": {"decay": grid.dynamic_decay},
        }
        for method in self.wanted:
            tried = METHODS[method].search_space
            if tried is None:
                axes = by_method.get(method, {"weight": grid.weight})
            else:
                axes = tried(self.settings.methods, grid)
            for name, axis in axes.items():
                values = list(axis)
                key = f"{dotted(method)}.{name}"
                if self.fixed.get(key, values[0]) not in values:
                    raise UserError(
                        f"{key}={self.fixed[key]} is not a value that tuning tries for {method}; "
                        "choose one of "
                        f"{', '.join(map(str, values))}"
                    )

    def predictors(
        self, method: str, tried: Iterable[Point], **whole: float
    ) -> dict[str, Predictor]:
        """Return a rule for each point, named by method and the point's number; ``whole`` are
        values for all of them.

        A point with an online sharpness has a rule for each of its memories, numbered as well.
        """
        changes = {f"{dotted(method)}.{name}": value for name, value in whole.items()}
        predictors = {}
        for index, point in enumerate(tried):
            for name, alone in named(f"{method} {index}", point).items():
                settings = self.settings.changed({**alone, **changes})
                predictors[name] = METHODS[method].predictor(settings.methods)
        return predictors


def named(name: str, point: Point) -> dict[str, Point]:
    """Return a point by its name; with an online sharpness, return the points of the memories that
    it mixes.
    """
    for setting, value in point.items():
        values = ONLINE_VALUES.get(setting.rpartition(".")[2], ())
        if value == ONLINE and values:
            points = {}
            for index, number in enumerate(values):
                points[f"{name}.{index}"] = {**point, setting: number}
            return points
    return {name: point}


def write_tuned(
    search: Search, scenario: Scenario, provenance: Mapping[str, Any], folder: Path
) -> None:
    """Write ``tuned.json``, with every point tried, and ``config.json`` for ``hebblm-eval
    --config``.
    """
    # The window is not tuned, but theta and gamma were found for it.
    values = {"cache.window": search.start.methods[CacheConfig].window, **search.values}
    losses = {}
    tried = {}
    for name, best in search.best.items():
        losses[name] = best.loss
        if best.tried:
            tried[name] = encode(best.tried, f"tried.{name}")
    document = {
        "schema": TUNED_SCHEMA,
        "values": values,
        "scenario": describe(scenario),
        "model": scenario.model.describe(),
        "provenance": {**provenance, "data_sha256": scenario.data_sha256},
        "at_end": search.at_end,
        "nll": losses,
        "tried": tried,
    }
    with file_lock(folder / TUNED_FILE, "tuned values"):
        write_json(folder / TUNED_FILE, document)
        write_json(folder / "config.json", {"values": values})
