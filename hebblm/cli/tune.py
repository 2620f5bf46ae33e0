"""``hebblm-tune``: the grids of every method on validation text."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from hebblm.adapt.methods import TUNABLE, load_plugin, named
from hebblm.cli.common import command, tell
from hebblm.evaluation.hyperparameters import parse_settings, plain_name
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.interrupts import GOES_ON, interrupted
from hebblm.models.device import check_device, keep_freed_memory
from hebblm.provenance import command_line
from hebblm.ranks import opened
from hebblm.report.methods import name_of
from hebblm.report.numbers import perplexity
from hebblm.report.render import print_table
from hebblm.report.table import Column, Table

if TYPE_CHECKING:  # it loads torch
    from hebblm.tuning.search import Search

PROG = "hebblm-tune"


@dataclass(frozen=True)
class TuneConfig(ScenarioConfig):
    """Options of tuning: on what, and where the values go.

    Args:
        split: valid; test is refused.
        methods: comma-separated: only these are tuned, and what they rest on; by default all.
        plugin: Python files that register methods of your own, which --methods then knows.
        set: hyper-parameters that are not tuned, e.g. --set cache.window=3785; one that is tuned otherwise keeps this
            value, which must be among those tried. Across domains base.lr > 0 has the base's own rate tuned as well.
        around: tuned.json of an earlier tuning: only values next to those found there are tried, and on from the best
            of them for dynamic evaluation, so that a whole text (--max-tokens null) costs a third after its first
            tokens (--max-tokens 20000).
        output_path: folder for tuned.json (every point tried) and config.json (for hebblm-eval --config).
        skip_dynamic: leave dynamic evaluation out; it reads the text once a point.
    """

    split: Literal["test", "valid"] = "valid"
    max_tokens: int | None = 10_000
    methods: str | None = None
    plugin: list[Path] = field(default_factory=list, metadata={"nargs": "+"})
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    around: Path | None = None
    output_path: Path = Path("results/tuned")
    skip_dynamic: bool = False


@command(PROG, TuneConfig, "hebblm-tune --cross-domain wt2-to-ptb --output-path results/tuned")
@interrupted(GOES_ON)
def main(config: TuneConfig, argv: list[str]) -> int:
    """Find every method's hyper-parameters on the validation text of one scenario, which has to be named.

    A base that stays as trained reads the text once for all values that are tried; a base that learns, once for each.
    """
    for path in config.plugin:
        load_plugin(path)
    check_device(config.device)
    settings = parse_settings(config.set)
    methods = TUNABLE if config.methods is None else named(config.methods)
    from hebblm.front import tune

    keep_freed_memory()
    with opened(config.device):
        search = tune(
            **config.scenario(),
            methods=methods,
            settings=settings,
            dynamic=not config.skip_dynamic,
            around=config.around,
            output_path=config.output_path,
            command=command_line(PROG, argv),
        )
    print_table(tuned_table(search), Console())
    tell(f"values in {config.output_path}; use them with")
    print(evaluation(config, search))  # whole, to be pasted
    return 0


def evaluation(config: TuneConfig, search: Search) -> str:
    """Command that evaluates the tuned scenario with the values found, and those set that were not tuned."""
    methods = [] if config.methods is None else ["--methods", ",".join(dict.fromkeys(("lstm", *named(config.methods))))]
    given = parse_settings(config.set).items()
    kept = [f"{name}={value}" for name, value in given if plain_name(name) not in search.values]
    changes = ["--set", *kept] if kept else []
    # A text of the user's own would be read whole, with what was tuned on.
    rest = ["--split", "test"] if config.text or (config.target or "").startswith("text:") else []
    values = ["--config", str(config.output_path / "config.json")]
    return shlex.join(["hebblm-eval", *config.arguments(), *rest, *methods, *values, *changes])


def tuned_table(search: Search) -> Table:
    """One line a method: its loss at the best point, at the default one, and the values of the best."""
    bits = search.bits_per_byte
    unit = "" if bits is None else "piece"
    columns = (
        Column("Method"),
        Column("Nats", "nll", subheader=unit),
        Column("Default", "nll", subheader=unit),
        Column("PPL" if bits else "Perplexity", "perplexity", subheader=unit),
        *([] if bits is None else [Column("Bits", "nll", subheader="byte", decimals=3)]),
        Column("Values", wide=True),
    )
    ends = search.at_end
    rows = tuple(
        (
            name_of(name),
            best.loss,
            search.default_loss(name) if name in TUNABLE else None,
            perplexity(best.loss),
            *([] if bits is None else [bits(best.loss)]),
            ", ".join(f"{key}={_short(value)}{'*' * (key in ends)}" for key, value in best.values.items()),
        )
        for name, best in search.best.items()
    )
    note = "* the least or the largest value tried: a better one may lie beyond"
    return Table("tuned", "Best on validation", columns, rows, (note,) if ends else ())


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
