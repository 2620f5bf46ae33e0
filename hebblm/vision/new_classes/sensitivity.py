"""How beta and eta share the accuracy between new and old classes (the paper's Fig. hyper)."""

from __future__ import annotations

import itertools

from hebblm.vision.new_classes.online import run_online
from hebblm.vision.new_classes.settings import SensitivitySettings
from hebblm.vision.new_classes.setup import Outcome, Setup
from hebblm.vision.new_classes.tuning import Point

BESIDE = ("parametric", "mixture", "mbpa")


def run_sensitivity(setup: Setup) -> Outcome:
    """Run Hebb with every point of the grid, and the other methods beside it, from one adaptation pass a seed.

    Raises:
        UserError: as :func:`hebblm.vision.new_classes.online.run_online`.
    """
    grid = points(setup.settings.sensitivity)
    return run_online(setup, (*BESIDE, *grid), points=grid)


def points(grid: SensitivitySettings) -> dict[str, Point]:
    """Return the points of the grid by name."""
    return {
        f"hebb beta={beta:g} eta={eta:g}": {"beta": beta, "eta": eta}
        for beta, eta in itertools.product(grid.beta, grid.eta)
    }
