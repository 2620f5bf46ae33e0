"""MbPA's rate, the base's rate and Hebb's values, found on validation text: those that
``hebblm-tune`` does not reach.

    python -m recipes.hebb.tune --intra-domain ptb --set mbpa.optimizer=sgd mbpa.steps=1
    mbpa.l2_to_base=0 --mbpa-lr 1 2 4 8 --output-path results/hebb/tuned/ptb-1-step

The steps of ``mbpa.steps`` stay as they are, as do pull and weight of Newton's steps: only rates
are tried, then Hebb's whole grid at the best of them. Writes tuned.json, which ``hebblm-eval
--hyperparameters`` reads.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

from hebblm.adapt.grid import Grid
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.api.request import Request
from hebblm.cli.common import command
from hebblm.cli.tune import tuned_table
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings
from hebblm.evaluation.resume import resumable
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.report.render.table import print_table
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.tuning.search import Search, write_tuned
from hebblm.tuning.tune import tune

PROG = "python -m recipes.hebb.tune"
METHODS = ("hebb",)  # with MbPA, on which it rests


@dataclass(frozen=True)
class HebbTuneConfig(ScenarioConfig):
    """Options of tuning Hebb over one form of MbPA.

    Args:
        split: valid; test is refused.
        mbpa_lr: rates of MbPA's gradient steps to try.
        base_lr: rates of the base to try, where base.lr is set above 0.
        set: settings that stay as they are.
        output_path: folder for tuned.json and config.json.
    """

    split: Literal["test", "valid"] = "valid"
    max_tokens: int | None = 10_000
    mbpa_lr: list[float] = field(default_factory=list, metadata={"nargs": "+"})
    base_lr: list[float] = field(default_factory=list, metadata={"nargs": "+"})
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    output_path: Path = Path("results/hebb/tuned")


def grid_of(config: HebbTuneConfig, settings: Hyperparameters) -> Grid:
    """Return the values to try: the given rates, and all of Hebb's.

    Raises:
        UserError: rates are missing, or nothing would read them.
    """
    mbpa = settings.methods[MbpaConfig]
    for name, rates, read, when in (
        ("mbpa-lr", config.mbpa_lr, mbpa.optimizer != "newton", "mbpa.optimizer=sgd"),
        ("base-lr", config.base_lr, settings.base.lr > 0, "base.lr above 0"),
    ):
        if bool(rates) != read:
            raise UserError(f"--{name} {rates} belongs to --set {when}; give both, or neither")
    return Grid(
        base_lr=tuple(config.base_lr),
        mbpa_lr=tuple(config.mbpa_lr),
        mbpa_steps=(mbpa.steps,),
        mbpa_l2_to_base=(mbpa.l2_to_base,),
        mbpa_weight=(mbpa.weight,),
    )


def tuned(config: HebbTuneConfig, made_by: str) -> Search:
    """Return the best values, written to the folder as well."""
    if config.split != "valid":
        raise UserError(f"tuning must not read the split {config.split!r}; use --split valid")
    request = Request.of(
        **config.scenario(),
        settings=parse_settings(config.set),
        output_path=config.output_path,
    )
    grid = grid_of(config, request.settings)
    scenario, record = request.open("tune", made_by)
    asked = {"hebb": list(METHODS), "grid": asdict(grid)}
    with resumable(scenario, request.settings, record, asked) as checkpoint:
        search = tune(
            scenario,
            request.settings,
            grid,
            dynamic=False,
            methods=METHODS,
            checkpoint=checkpoint,
        )
        write_tuned(search, scenario, record, config.output_path)
    return search


@command(PROG, HebbTuneConfig, f"{PROG} --intra-domain ptb --output-path results/hebb/tuned/ptb")
@interrupted(GOES_ON)
def main(config: HebbTuneConfig, argv: list[str]) -> int:
    """Find the rate of MbPA or of the base, then Hebb's values, on validation text."""
    print_table(tuned_table(tuned(config, f"{PROG} {shlex.join(argv)}")), Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
