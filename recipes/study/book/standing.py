"""Choice of the run of a scenario that is held against the paper, and of the settings a run was
made with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hebblm.adapt.methods import PAPER_METHODS
from hebblm.evaluation.defaults import paper_values
from hebblm.evaluation.scenario import ScenarioConfig
from hebblm.report.render.result import Result
from recipes.study import paper

RULE = (
    "Of the runs of a scenario one counts: with other values than the paper's, with the policies "
    "that are the "
    "default, with the share of new words nearest to the paper's, of the paper's methods and of "
    "the tokens the most, "
    "with the base of the lowest validation perplexity. "
    "What the others give is told apart."
)


def counted_runs(runs: Mapping[str, Result]) -> dict[str, Result]:
    """Return the run of each scenario that is held against the paper, by name; see :data:`RULE`.

    A scenario is a source, a target and a split: the paper has one set of numbers for each.
    """
    groups: dict[str, dict[str, Result]] = {}
    for name, result in runs.items():
        if paper.published(result.scenario) is not None:
            groups.setdefault(result.scenario.label, {})[name] = result
    chosen = [min(group.items(), key=lambda item: _rank(item[1])) for group in groups.values()]
    return dict(chosen)


def settings_of(result: Result, method: str) -> dict[str, Any]:
    """Return the hyper-parameters of one method of a run by dotted name, as ``hebblm-eval --set``
    knows them.
    """
    named: dict[str, Any] = {}
    for key, value in result.methods[method].hyperparameters.items():
        if isinstance(value, Mapping):
            named |= {f"{key}.{inner}": held for inner, held in value.items()}
        else:
            named[f"{method.replace('+', '_').replace('-', '_')}.{key}"] = value
    return named


def has_paper_values(result: Result) -> bool:
    """Return whether all hyper-parameters of a run for which the paper states an optimum are that
    optimum.
    """
    known: dict[str, Any] = {}
    for method in result.methods:
        known |= settings_of(result, method)
    stated = paper_values(result.scenario.source, result.scenario.target)
    compared = [known[name] == value for name, value in stated.items() if name in known]
    return bool(compared) and all(compared)


def _rank(result: Result) -> tuple[float, ...]:
    """Return the order of runs of a scenario, the one that counts first."""
    scenario = result.scenario
    printed = paper.published(scenario)
    covered = len(set(PAPER_METHODS) & result.methods.keys())
    seed = result.provenance.get("seed")
    return (
        has_paper_values(result),
        _deviations(result),
        abs(scenario.oov_rate - printed.oov_rate) if printed and printed.oov_rate else 0.0,
        -covered,
        -scenario.tokens,
        float(result.model.get("valid_perplexity", math.inf)),
        -len(result.methods),
        float(seed) if isinstance(seed, int) else 0.0,
    )


def _deviations(result: Result) -> int:
    """Return how many policies of a run are not the default; one that the file does not name is."""
    scenario, memory = result.scenario, result.memory
    content = "both" if scenario.source == scenario.target else "test"
    pairs = (
        (scenario.vocabulary, ScenarioConfig.vocabulary),
        (scenario.extra.get("update_every"), ScenarioConfig.update_every),
        (scenario.extra.get("new_rows"), ScenarioConfig.new_rows),
        (memory.get("k"), ScenarioConfig.k),
        (memory.get("content"), content),
        (result.model.get("update", {}).get("lr"), 0.0),  # a base that learns
    )
    return sum(value not in (None, default) for value, default in pairs)
