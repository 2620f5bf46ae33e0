"""Cost of each method in the online experiment, beside the network alone (the paper's Table "time")."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from hebblm.adapt.work import clock_of
from hebblm.files import read_json, write_json
from hebblm.vision.new_classes.methods import METHODS, methods_of, values_of
from hebblm.vision.new_classes.online import online_values, stream
from hebblm.vision.new_classes.pretraining import Pretrained
from hebblm.vision.new_classes.reading import Remembered, read
from hebblm.vision.new_classes.setup import ClassSetup, old_memory
from hebblm.vision.new_classes.split import predicted_order
from hebblm.vision.new_classes.tuning import Point
from hebblm.vision.setup import stage

WARM_UP_BLOCKS = 2


def run_timing(setup: ClassSetup) -> dict[str, Any]:
    """Run every method by itself over the same stream, in turn, so that a change of the machine's pace hits all alike.

    Learning, retrieval, adaptation and writing to the memory are timed; computing the old pictures' keys is not.

    Returns:
        What the result says of it.

    Raises:
        UserError: as :func:`hebblm.vision.new_classes.online.run_online`.
    """
    settings, seed = setup.settings, setup.seeds[0]
    setup.check(settings.old_classes)
    predicted_order(setup.dataset, settings.timing.samples, seed)
    values, tuning = online_values(setup, settings.old_classes)
    start = setup.start(seed, settings.old_classes)
    remembered = old_memory(start)
    run = setup.run_of(start, seed, values=values, samples=settings.timing.samples)
    path = setup.state / f"timing-{run}.json"
    seconds: dict[str, list[float]] = read_json(path) if path.exists() else {name: [] for name in METHODS}
    done = len(seconds[METHODS[0]])
    total = (settings.timing.rounds - done) * len(METHODS) * settings.timing.samples
    with stage("time every method in turn", max(0, total)) as progress:
        for name in METHODS:
            _timed(setup, start, remembered, name, values, WARM_UP_BLOCKS * settings.online.interval)
        for turn in range(done, settings.timing.rounds):
            shift = turn % len(METHODS)
            for name in METHODS[shift:] + METHODS[:shift]:
                seconds[name].append(_timed(setup, start, remembered, name, values, settings.timing.samples))
                progress(settings.timing.samples)
            write_json(path, seconds, seal=True)
    return {
        "tuning": {str(settings.old_classes): tuning},
        "seeds": [{"seed": seed, "pretraining": dict(start.record)}],
        "methods": {
            name: {
                "hyperparameters": values_of(name, values),
                "seconds": _median_of(own),
                "ratio": _median_of([a / b for a, b in zip(own, seconds["parametric"], strict=True)]),
            }
            for name, own in seconds.items()
        },
    }


def _median_of(values: list[float]) -> dict[str, Any]:
    """Return median and extremes of repeated measurements, and these themselves."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "rounds": values,
    }


def _timed(
    setup: ClassSetup,
    start: Pretrained,
    remembered: Remembered,
    name: str,
    values: Mapping[str, Point],
    samples: int,
) -> float:
    """Return the seconds of one run of one method."""
    settings = setup.settings
    order = predicted_order(setup.dataset, min(samples, len(setup.dataset.test)), setup.seeds[0])
    blocks = stream(
        start.copy(),
        start.pictures("test"),
        order,
        interval=settings.online.interval,
        lr=values["parametric"]["lr"],
    )
    methods = methods_of((name,), values, settings.adaptation)
    clock = clock_of(setup.device)
    begin = clock()
    read(blocks, remembered, methods, k=settings.adaptation.k, observes=True)
    return clock() - begin
