"""Hebb beside its simplified versions (the paper's Table "ablation")."""

from __future__ import annotations

from hebblm.vision.new_classes.methods import VARIANTS, ring_names
from hebblm.vision.new_classes.online import run_online
from hebblm.vision.new_classes.setup import Outcome, Setup


def run_ablation(setup: Setup) -> Outcome:
    """Run MbPA, the variants v1 to v3, Hebb with memories of fixed size, and Hebb over the stream.

    v1, v2 and v3 have hyper-parameters of their own, tuned like Hebb's; Hebb-N takes over Hebb's.

    Raises:
        UserError: as :func:`hebblm.vision.new_classes.online.run_online`.
    """
    rings = ring_names(setup.settings.adaptation)
    return run_online(setup, ("mbpa", *VARIANTS, *rings, "hebb"))
