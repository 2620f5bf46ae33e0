"""The experiments on new classes by name: run, and write what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hebblm.errors import UserError
from hebblm.vision.new_classes.ablation import run_ablation
from hebblm.vision.new_classes.incremental import run_incremental
from hebblm.vision.new_classes.online import run_online
from hebblm.vision.new_classes.result import write_outcome, write_times
from hebblm.vision.new_classes.sensitivity import run_sensitivity
from hebblm.vision.new_classes.setup import Outcome, Setup
from hebblm.vision.new_classes.timing import run_timing

OUTCOMES: dict[str, Callable[[Setup], Outcome]] = {
    "incremental": run_incremental,
    "online": run_online,
    "pretrain-classes": lambda setup: run_online(setup, old_classes=setup.settings.varied),
    "sensitivity": run_sensitivity,
    "ablation": run_ablation,
}
TIMING = "timing"


def run_experiment(
    experiment: str, scale: str, setup: Setup, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Run an experiment, or finish what was interrupted, and write its result.

    Args:
        experiment: incremental, online, pretrain-classes, sensitivity, timing or ablation.
        scale: smoke, small or paper.
        setup: data, settings, seeds and folders.
        provenance: command, commit, versions, device.

    Returns:
        What ``result.json`` holds.

    Raises:
        UserError: an unknown experiment, more asked for than the data set has, a damaged state, or diverged training.
    """
    if experiment == TIMING:
        return write_times(scale, run_timing(setup), setup, provenance)
    if experiment not in OUTCOMES:
        raise UserError(f"unknown experiment {experiment!r}; choose from {', '.join([*OUTCOMES, TIMING])}")
    return write_outcome(experiment, scale, OUTCOMES[experiment](setup), setup, provenance)
