"""Cost of each method in the online experiment, beside the network alone (the paper's Table "time")."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from hebblm.adapt.work import clock_of
from hebblm.vision.new_classes.methods import METHODS, methods_of, values_of
from hebblm.vision.new_classes.online import online_values, stream
from hebblm.vision.new_classes.reading import read
from hebblm.vision.new_classes.setup import ClassSetup, old_memory
from hebblm.vision.new_classes.split import predicted_order
from hebblm.vision.result import at_end
from hebblm.vision.state import Step, take_steps

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
    # Seconds of other threads or another GPU are no rounds of the same timing.
    gpu = torch.cuda.get_device_name(setup.device) if setup.device.type == "cuda" else None
    machine = [torch.get_num_threads(), gpu]
    run = setup.run_of(start, seed, values=values, samples=settings.timing.samples, machine=machine)

    def timed(name: str, samples: int) -> float:
        """Return the seconds of one run of one method."""
        order = predicted_order(setup.dataset, min(samples, len(setup.dataset.test)), seed)
        network, pictures, lr = start.copy(), start.pictures("test"), values["parametric"]["lr"]
        methods = methods_of((name,), values, settings.adaptation)
        clock = clock_of(setup.device)
        begin = clock()
        blocks = stream(network, pictures, order, interval=settings.online.interval, lr=lr)
        read(blocks, remembered, methods, k=settings.adaptation.k, observes=True)
        return clock() - begin

    def in_turn(turn: int) -> Step:
        """Time every method once, another one first in each turn."""
        shift = turn % len(METHODS)
        return {}, {
            name: {"seconds": timed(name, settings.timing.samples)} for name in METHODS[shift:] + METHODS[:shift]
        }

    for name in METHODS:
        timed(name, WARM_UP_BLOCKS * settings.online.interval)
    path, title = setup.state / f"timing-{run}.state.safetensors", "time every method in turn"
    _, rounds = take_steps(path, run, settings.timing.rounds, in_turn, title=title)
    seconds = {name: [each[name]["seconds"] for each in rounds] for name in METHODS}
    return {
        "tuning": {str(settings.old_classes): tuning},
        "at_end": at_end({str(settings.old_classes): tuning}),
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
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}
