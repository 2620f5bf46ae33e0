"""The experiments by name: run, and write what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hebblm.files import write_json
from hebblm.ranks import current
from hebblm.report.record import encode
from hebblm.suggest import unknown
from hebblm.vision.new_classes import result as new_classes
from hebblm.vision.new_classes.incremental import run_incremental
from hebblm.vision.new_classes.online import run_ablation, run_online, run_sensitivity
from hebblm.vision.new_classes.setup import ClassSetup
from hebblm.vision.new_classes.timing import run_timing
from hebblm.vision.permuted_mnist import result as permuted_mnist
from hebblm.vision.permuted_mnist.experiment import PermutedSetup, run_permuted
from hebblm.vision.permuted_mnist.settings import EXPERIMENT as PERMUTED_MNIST
from hebblm.vision.result import RESULT_FILE, SCHEMA

RUNS: dict[str, Callable[[Any], Any]] = {
    PERMUTED_MNIST: run_permuted,
    "incremental": run_incremental,
    "online": run_online,
    "pretrain-classes": lambda setup: run_online(setup, old_classes=setup.settings.varied),
    "sensitivity": run_sensitivity,
    "ablation": run_ablation,
    "timing": run_timing,
}
"""From a setup to predictions, of timing to what the result says."""


def run_experiment(
    experiment: str,
    scale: str,
    setup: PermutedSetup | ClassSetup,
    provenance: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Run an experiment, or finish what was interrupted, and write its result.

    Args:
        experiment: permuted-mnist, incremental, online, pretrain-classes, sensitivity, timing or ablation.
        scale: smoke, small or paper.
        setup: data, settings, seeds and folders; a ``ClassSetup`` for all but permuted-mnist.
        provenance: command, commit, versions, device.

    Returns:
        What ``result.json`` holds; None in others than the first of several ranks, which divide the seeds.

    Raises:
        UserError: an unknown experiment, more asked for than the data set has, a damaged state, or diverged training.
    """
    if experiment not in RUNS:
        raise unknown("experiment", experiment, RUNS, f"choose from {', '.join(RUNS)}")
    outcome = RUNS[experiment](setup)
    if not current().leads:
        return None
    if not isinstance(setup, ClassSetup):
        body = permuted_mnist.outcome_of(outcome, setup.settings, setup.folder)
    else:
        body = outcome if experiment == "timing" else new_classes.outcome_of(experiment, outcome, setup)
    document = {
        "schema": SCHEMA,
        "experiment": experiment,
        "scale": scale,
        "settings": asdict(setup.settings),
        "data": {"name": setup.dataset.name, "sha256": dict(setup.dataset.sha256)},
        "provenance": {**provenance, "seeds": list(setup.seeds)},
        **body,
    }
    write_json(setup.folder / RESULT_FILE, encode(document, "result"))
    return document
