from __future__ import annotations

from typing import Any

import pytest

from hebblm.adapt.grid import Grid, near
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import MemoryConfig
from hebblm.models.dynamic import DynamicConfig
from hebblm.tuning.points import BestPoint
from hebblm.tuning.search import Search
from hebblm.tuning.tune import tune, tune_dynamic

from ...support import toy
from .scenarios import scenario_of


@pytest.mark.parametrize(
    ("some", "kept"),
    [
        ([2.0], (1.0, 2.0, 3.0, "online")),
        ([9.0], (3.0, 4.0, "online")),
        (["online"], ("online",)),
        ([1.0, 2.9], (1.0, 2.0, 3.0, 4.0, "online")),
        ([], ()),
    ],
)
def test_next_to_a_number_are_its_neighbours_and_all_words(
    some: list[float | str], kept: tuple[Any, ...]
) -> None:
    assert near((1.0, 2.0, 3.0, 4.0, "online"), some) == kept


def test_around_values_their_neighbours_alone_are_tried_at_the_losses_of_the_whole_grid() -> None:
    start = Hyperparameters(
        methods=toy.exact(toy.SETTINGS),
        dynamic=DynamicConfig("sgd", lr=1.0, segment=20),
        memory=MemoryConfig("exact"),
    )
    grid = Grid(
        theta=(0.5,),
        temperature=(1.0,),
        gamma=(0.3,),
        weight=(0.5,),
        dynamic_lr=(0.1, 0.2, 0.4, 0.8),
    )
    scenario = scenario_of("intra-domain", 60)
    whole = tune(scenario, start, grid)
    found = {
        "mbpa.lr": 6.0, "mbpa.steps": 10, "mbpa_absolute.lr": 1.0, "mixture_gated.theta": 0.6,
        "hebb.kernel_weight": "max", "hebb.beta": 0.5, "dynamic.lr": 0.1,
    }  # fmt: skip
    narrow = tune(scenario, start, grid, around=found)
    tried = {method: len(best.tried) for method, best in narrow.best.items()}
    assert (tried["mbpa"], tried["hebb"]) == (2 * 3, 1 * 3 * len(grid.eta))
    assert (tried["mbpa-absolute"], tried["cache"]) == (3, len(whole.best["cache"].tried)), (
        "nothing was found for it"
    )
    for method in ("mbpa", "mbpa-absolute", "dynamic"):
        assert all(point in whole.best[method].tried for point in narrow.best[method].tried), method


def test_a_base_that_learns_is_tried_around_values_and_on_toward_the_best_of_the_grid() -> None:
    start = Hyperparameters(
        methods=toy.exact(toy.SETTINGS), dynamic=DynamicConfig("sgd", lr=1.0, segment=20)
    )
    grid = Grid(dynamic_lr=(0.001, 0.01, 0.1, 0.2, 0.4), dynamic_decay=(0.0, 0.01, 0.1))
    scenario = scenario_of("intra-domain", 60)

    def tuned(around: dict[str, float]) -> BestPoint:
        search = Search(start, grid, {"dynamic"}, {})
        tune_dynamic(search, scenario, around)
        return search.best["dynamic"]

    whole = tuned({})
    assert len(whole.tried) == 15
    assert whole.values["dynamic.lr"] >= 0.1, "else the climb is none"
    climbed = tuned({"dynamic.lr": 0.0011, "dynamic.decay": 0.0, "mbpa.l2_to_base": 1.0})
    assert (climbed.values, climbed.loss) == (whole.values, whole.loss)
    assert all(point in whole.tried for point in climbed.tried)
    assert len({tuple(point.items()) for point in climbed.tried}) == len(climbed.tried) < 15
    beside = tuned({name: float(value) for name, value in whole.values.items()})
    assert len(beside.tried) < len(climbed.tried)
    assert beside.values == whole.values


def test_around_values_a_fixed_one_that_is_further_off_is_tried_too() -> None:
    start = Hyperparameters(
        methods=toy.exact(toy.SETTINGS), dynamic=DynamicConfig("sgd", lr=1.0, segment=20)
    )
    grid = Grid(dynamic_lr=(0.1, 0.2), dynamic_decay=(0.0, 0.01, 0.1, 0.5))
    search = Search(start, grid, {"dynamic"}, {"dynamic.decay": 0.5})
    tune_dynamic(search, scenario_of("intra-domain", 60), {"dynamic.lr": 0.1, "dynamic.decay": 0.0})
    assert search.values["dynamic.decay"] == 0.5
