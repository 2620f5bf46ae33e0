"""The experiments by name: run, and write what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hebblm.errors import UserError
from hebblm.ranks import current
from hebblm.vision.new_classes.incremental import run_incremental
from hebblm.vision.new_classes.online import run_ablation, run_online, run_sensitivity
from hebblm.vision.new_classes.result import write_outcome, write_times
from hebblm.vision.new_classes.setup import ClassSetup, Outcome
from hebblm.vision.new_classes.timing import run_timing
from hebblm.vision.permuted_mnist.experiment import PermutedMnist
from hebblm.vision.permuted_mnist.result import EXPERIMENT as PERMUTED_MNIST
from hebblm.vision.permuted_mnist.result import write_result
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.setup import Setup

OUTCOMES: dict[str, Callable[[ClassSetup], Outcome]] = {
    "incremental": run_incremental,
    "online": run_online,
    "pretrain-classes": lambda setup: run_online(setup, old_classes=setup.settings.varied),
    "sensitivity": run_sensitivity,
    "ablation": run_ablation,
}
TIMING = "timing"


def run_experiment(
    experiment: str,
    scale: str,
    setup: Setup[PermutedSettings] | ClassSetup,
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
    writes = current().leads
    if not isinstance(setup, ClassSetup):
        made = PermutedMnist(setup).run()
        return write_result(made, setup, scale=scale, provenance=provenance) if writes else None
    if experiment == TIMING:
        return write_times(scale, run_timing(setup), setup, provenance)
    if experiment not in OUTCOMES:
        known = ", ".join([PERMUTED_MNIST, *OUTCOMES, TIMING])
        raise UserError(f"unknown experiment {experiment!r}; choose from {known}")
    outcome = OUTCOMES[experiment](setup)
    return write_outcome(experiment, scale, outcome, setup, provenance) if writes else None
