"""Readings of the paper that it leaves open, each next to the default, over one reading of a text a
memory content.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.api.request import Request
from hebblm.errors import UserError
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.resume import resumable
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scenario_config import Content
from hebblm.io.files import write_json
from hebblm.report.result.methods import BASE
from hebblm.report.result.parts import ALL, Bootstrap, bootstrap_gains
from hebblm.tuning.points import Losses, Point, points
from hebblm.tuning.replay import Replay, describe
from recipes.study.readings.record import DEFAULT, FILE_NAME, Effect, Readings, tuned

CHOICES: dict[str, dict[str, Any]] = {
    "c_k raw": {"mbpa.kernel_weight": "raw", "hebb.kernel_weight": "raw"},
    "c_k of sum 1": {"mbpa.kernel_weight": "sum", "hebb.kernel_weight": "sum"},
    "c_k of maximum 1": {"mbpa.kernel_weight": "max", "hebb.kernel_weight": "max"},
    "larger eps": {"mbpa.eps": 0.1},
    "smaller eps": {"mbpa.eps": 1e-5},
    "literal gate": {"hebb.gate": "literal"},
    "n_i of the memory": {"hebb.counts": "memory"},
    "Mixture as printed": {
        "mixture.form": "logit-sum",
        "mixture.scale": "absolute",
        "mixture.theta": 0.4,
        "mixture.gamma": 0.15,
    },
}
"""Hyper-parameters by reading; what the memory holds is a reading too, which changes the
neighbours.
"""

OWN: dict[str, list[Point]] = {
    "mixture": points(
        "mixture", theta=(0.2, 0.4, 0.8, 1.5, 3.0), gamma=(0.02, 0.05, 0.1, 0.2, 0.3)
    ),
    "mbpa": points("mbpa", l2_to_base=(0.0025, 0.0035, 0.007)),
    "hebb": points("hebb", beta=(0.9, 0.99), eta=[4.0**power for power in range(-4, 5)]),
}
"""Values of its own that each method tries under each reading; a Mixture that learns them online
has none to try.
"""
AT_ONCE = 32  # rules read side by side; each may keep logits of all classes


def compare(
    options: Mapping[str, Any],
    methods: list[str],
    hyperparameters: str,
    settings: Mapping[str, Any],
    folder: Path | None,
    command: str,
) -> Readings:
    """Open a scenario by the options of hebblm-eval, compare the readings on it, and write them to
    a folder.
    """
    request = Request.of(
        hyperparameters=hyperparameters, settings=settings, output_path=folder, **options
    )
    request.check_keys(methods)
    request.check_one_stream("readings are compared on a single stream")
    scenario, record = request.open("evaluate", command)
    with resumable(scenario, request.settings, record, {"readings": methods}) as checkpoint:
        found = compare_readings(scenario, methods, request.settings, record, checkpoint)
        if request.folder is not None:
            write_json(request.folder / FILE_NAME, found.to_json())
    return found


def compare_readings(
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    provenance: Mapping[str, Any],
    checkpoint: RunCheckpoint | None = None,
) -> Readings:
    """Score a text under every reading, the other values staying as they are, and then each
    method's own tried.

    States and neighbours are computed once for each content of the memory, whatever is read from
    them. A tuned reading is compared with the tuned default: the best of the same values
    (:data:`OWN`) on the same text.

    Args:
        scenario: opened, with the union vocabulary; its content of the memory is the default.
        methods: those that retrieve are compared.
        settings: of the default reading.
        provenance: command, commit, versions, device, seed.
        checkpoint: of the run, None where that is not kept.

    Raises:
        UserError: no method, or an open vocabulary.
    """
    named = {
        name: METHODS[name].predictor(settings.methods)
        for name in methods
        if not METHODS[name].uses_dynamic_base
    }
    plain = {
        name: predictor for name, predictor in named.items() if predictor.requirements.retrieval
    }
    if not plain:
        raise UserError(
            "no method that retrieves was named; readings differ in what is done with neighbours"
        )
    if scenario.config.vocabulary != "union":
        raise UserError(
            f"vocabulary {scenario.config.vocabulary!r} has no readings; compare them with union"
        )
    scenario.training_ids()  # a reading with a memory of it comes last
    chosen: dict[str, dict[str, Any]] = {DEFAULT: {}, **CHOICES}
    predictors: dict[tuple[str, str], Predictor] = {}
    for reading, values in chosen.items():
        read = settings.changed(values).methods
        for name in plain:
            predictor = METHODS[name].predictor(read)
            if reading == DEFAULT or predictor != plain[name]:
                predictors[reading, name] = predictor
    replay = Replay.of(scenario, settings, checkpoint)
    losses = _losses(replay, predictors)
    best = _tuned(replay, settings, {key: chosen[key[0]] for key in predictors})
    own = scenario.config.memory_content
    for content in get_args(Content):
        if content != own:
            reading = f"memory of {content}"
            chosen[reading] = {"memory_content": content}
            other = replace(scenario, config=replace(scenario.config, memory_content=content))
            replay = Replay.of(other, settings, checkpoint)
            losses |= _losses(
                replay, {(reading, name): predictor for name, predictor in plain.items()}
            )
            best |= _tuned(replay, settings, {(reading, name): {} for name in plain})
    seed = scenario.config.seed
    effects = [_effect(reading, name, losses, seed) for reading, name in losses]
    for reading, name in best:
        values, mine = best[reading, name]
        beside = {(tuned(reading), name): mine, (DEFAULT, name): losses[DEFAULT, name]}
        if reading != DEFAULT and (DEFAULT, name) in best:
            beside[DEFAULT, name] = best[DEFAULT, name][1]
        effects.append(replace(_effect(tuned(reading), name, beside, seed), values=values))
    chosen |= {tuned(name): values for name, values in chosen.items()}
    return Readings(
        scenario=describe(scenario),
        settings={
            name: values
            for name, values in chosen.items()
            if any(e.reading == name for e in effects)
        },
        effects=tuple(effects),
        provenance={**provenance, "data_sha256": scenario.data_sha256},
    )


def _losses(
    replay: Replay, predictors: Mapping[tuple[str, str], Predictor]
) -> dict[tuple[str, str], Losses]:
    """Return the losses (T,) of some rules, by reading and method, nats."""
    named = {": ".join(key): predictor for key, predictor in predictors.items()}
    content = replay.scenario.config.memory_content
    losses = replay.score(named, f"{len(named)} readings, memory {content}")
    return {key: losses[": ".join(key)] for key in predictors}


def _tuned(
    replay: Replay, settings: Hyperparameters, readings: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[tuple[str, str], tuple[Point, Losses]]:
    """Return a method's best values under a reading, and its losses (T,) with them, nats."""
    best: dict[tuple[str, str], tuple[Point, Losses]] = {}
    tried: list[tuple[tuple[str, str], Point, Predictor]] = []
    for (reading, method), values in readings.items():
        learns = (
            method == "mixture" and settings.changed(values).methods[MixtureConfig].form == "linear"
        )
        for point in [] if learns else OWN.get(method, []):
            predictor = METHODS[method].predictor(settings.changed({**values, **point}).methods)
            tried.append(((reading, method), point, predictor))
    for begin in range(0, len(tried), AT_ONCE):
        some = tried[begin : begin + AT_ONCE]
        predictors = {str(begin + index): predictor for index, (_, _, predictor) in enumerate(some)}
        part = f"part {begin // AT_ONCE + 1} of {math.ceil(len(tried) / AT_ONCE)}"
        title = f"tuned readings, memory {replay.scenario.config.memory_content}, {part}"
        for (key, point, _), losses in zip(
            some, replay.score(predictors, title).values(), strict=True
        ):
            # which a nan is not
            if losses.mean() < (best[key][1].mean() if key in best else np.inf):
                best[key] = point, losses
    return best


def _effect(
    reading: str, method: str, losses: Mapping[tuple[str, str], Losses], seed: int
) -> Effect:
    mine, default = losses[reading, method], losses[DEFAULT, method]
    if reading == DEFAULT:
        return Effect(reading, method, float(mine.mean()), 0.0, None, None)
    whole = {ALL: np.ones(mine.size, dtype=np.bool_)}
    (gain,) = bootstrap_gains({BASE: default, reading: mine}, whole, Bootstrap(seed=seed))[reading]
    low, high = (None if end is None else -end for end in (gain.high, gain.low))
    change = None if gain.gain is None else -gain.gain
    return Effect(reading, method, float(mine.mean()), change, low, high)
