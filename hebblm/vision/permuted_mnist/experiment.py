"""Permuted MNIST from data to predictions: tuning, then every seed's chains with and without EWC (Fig. mnist)."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor

from hebblm.files import hash_of, read_json, write_json
from hebblm.ranks import current
from hebblm.report.record import decode, encode
from hebblm.vision.errors import DivergedError
from hebblm.vision.permuted_mnist.chain import TRAINING, Chain
from hebblm.vision.permuted_mnist.measure import (
    Tried,
    held_out_scores,
    network_alone,
    network_and_memory,
    tune_adaptation,
)
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.result import Outcome, SeedRun, Values, best
from hebblm.vision.seeds import divided
from hebblm.vision.setup import NUMBERS, Setup, program

PermutedSetup = Setup[PermutedSettings]


def run_permuted(setup: PermutedSetup) -> Outcome:
    """Run to the end, or finish what was interrupted after its last finished task.

    Raises:
        UserError: more samples asked for than there are, the folder holds the state of another run, or training
            diverged.
    """
    settings = setup.settings
    streams = [TaskStream(setup.dataset, settings, seed, setup.device) for seed in setup.seeds]
    with current().in_turn():
        tried = _tune(setup, streams[0]) if settings.tuned else None
    values = settings.first() if tried is None else {name: best(points) for name, points in tried.items()}
    return Outcome(tuple(divided([partial(_run_seed, setup, stream, values) for stream in streams])), tried)


def _decisive(setup: PermutedSetup) -> dict[str, Any]:
    """Return what decides about the numbers of all seeds."""
    return {
        "settings": asdict(setup.settings),
        "data": dict(setup.dataset.sha256),
        "device": setup.device.type,
        "program": program(*NUMBERS, "vision/permuted_mnist"),
        "tuned_with": setup.seeds[0] if setup.settings.tuned else None,
    }


def _tune(setup: PermutedSetup, stream: TaskStream) -> Tried:
    """Return what was tried on held-out samples of the first tasks of a seed."""
    settings, run = setup.settings, hash_of(_decisive(setup))
    path = setup.state / f"tuning-{run}.json"
    if path.exists():
        found: Tried = decode(read_json(path), "tuning")
        return found

    def learnt(name: str, title: str, strength: float | None) -> MLP:
        chain, kept = Chain(stream, strength), setup.state / f"tuning-{name}.state.safetensors"
        chain.run(lambda model, task: ({}, {}), f"tune {title}", tasks=settings.tune_tasks, path=kept, run=run)
        return chain.model

    tried: Tried = {"ewc": []}
    for strength in settings.ewc_lambda:
        try:
            scores = held_out_scores(stream, learnt(f"ewc-{strength:g}", f"EWC, lambda {strength:g}", strength))
        except DivergedError:
            scores = {"accuracy": 0.0, "loss": math.inf}
        tried["ewc"].append({"lambda": strength, **scores})
    model = learnt("mlp", "MbPA and Hebb", None)
    for size in settings.stored:
        tried |= tune_adaptation(stream, model, size)
    write_json(path, encode(tried, "tuning"), seal=True)
    return tried


def _run_seed(setup: PermutedSetup, stream: TaskStream, values: Values) -> SeedRun:
    """Learn all tasks twice, with and without EWC, and evaluate after each."""
    seed = stream.seed
    run = hash_of({**_decisive(setup), "seed": seed, "values": values})
    predictions: dict[str, Tensor] = {}
    counted: dict[str, dict[str, float]] = {}
    training = {}
    for name, strength, measure in (
        ("mlp", None, partial(network_and_memory, stream, values)),
        ("ewc", values["ewc"]["lambda"], partial(network_alone, stream, "ewc")),
    ):
        path = setup.state / f"seed-{seed}-{name}.state.safetensors"
        made, numbers = Chain(stream, strength).run(
            measure, f"seed {seed}, {name}", tasks=setup.settings.tasks, path=path, run=run
        )
        training[name] = numbers.pop(TRAINING)["seconds"]
        predictions |= made
        counted |= numbers
    about = {"training_seconds": training}
    return SeedRun(seed, values, stream.test_labels, predictions, counted, vars(stream.drawn), about=about)
