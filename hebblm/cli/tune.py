"""``hebblm-tune``: tune every method on validation text."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.console import Console

from hebblm.adapt.methods import TUNABLE, load_plugin, named
from hebblm.adapt.renamed import present_name
from hebblm.cli.common import command, print_line
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.evaluation.scenario_config import Groups, ScenarioConfig
from hebblm.io.provenance import command_line
from hebblm.models.device import check_device, keep_freed_memory
from hebblm.report.render.table import print_table
from hebblm.report.result.methods import name_of
from hebblm.report.result.numbers import Cell, perplexity
from hebblm.report.tables.table import Column, Row, Table
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.runtime.ranks import opened

if TYPE_CHECKING:  # it loads torch
    from hebblm.tuning.search import Search

PROG = "hebblm-tune"


@dataclass(frozen=True)
class TuneConfig(ScenarioConfig):
    """Options of tuning: the text, the methods and the output.

    Args:
        split: valid; test is refused.
        methods: methods to tune, separated by commas, together with those they build on; by default
            all.
        plugin: Python files that register your own methods, which --methods then knows.
        set: hyper-parameters to keep fixed, e.g. --set cache.window=3785; if tuning would try
            others, the value must be among those. Across domains base.lr > 0 makes it tune the
            base's own rate as well.
        around: tuned.json of an earlier tuning; only values next to those found there are tried.
            For dynamic evaluation the search goes on from the best of them. So a whole text
            (--max-tokens null) costs a third after its first tokens (--max-tokens 20000).
        output_path: folder for tuned.json (every point tried) and config.json (for hebblm-eval
            --config).
        skip_dynamic: leave dynamic evaluation out; it reads the text once for every point.
    """

    GROUPS: ClassVar[Groups] = (*ScenarioConfig.GROUPS, ("output", None, "output_path"))

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
    """Tune every method's hyper-parameters on the validation text of one scenario, which you have
    to name.

    A base that stays as trained reads the text once for all values; a base that learns reads it
    once for each.
    """
    for path in config.plugin:
        load_plugin(path)
    check_device(config.device)
    settings = parse_settings(config.set)
    methods = TUNABLE if config.methods is None else named(config.methods)
    from hebblm.api.runs import tune

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
    print_line(f"values in {config.output_path}; use them with")
    print(evaluation(config, search))  # in one line, for pasting
    return 0


def evaluation(config: TuneConfig, search: Search) -> str:
    """Return the command that evaluates the tuned scenario with the values found, and with those
    set by hand.
    """
    words = ["hebblm-eval", *config.arguments()]
    # By default the user's own text is read whole, including the part for tuning.
    if config.text or (config.target or "").startswith("text:"):
        words += ["--split", "test"]
    if config.methods is not None:
        methods = dict.fromkeys(("lstm", *named(config.methods)))
        words += ["--methods", ",".join(methods)]
    words += ["--config", str(config.output_path / "config.json")]
    given = parse_settings(config.set).items()
    kept = [f"{name}={value}" for name, value in given if present_name(name) not in search.values]
    if kept:
        words += ["--set", *kept]
    return shlex.join(words)


def tuned_table(search: Search) -> Table:
    """Return a table with one line per method: its loss at the best and the default point, and the
    best values.
    """
    bits = search.bits_per_byte
    unit = ""
    perplexity_header = "Perplexity"
    if bits is not None:
        unit = "piece"
        perplexity_header = "PPL"
    columns = [
        Column("Method"),
        Column("Nats", "nll", subheader=unit),
        Column("Default", "nll", subheader=unit),
        Column(perplexity_header, "perplexity", subheader=unit, name="Perplexity"),
    ]
    if bits is not None:
        columns.append(Column("Bits", "nll", subheader="byte", decimals=3))
    columns.append(Column("Values", wide=True))
    rows: list[Row] = []
    for name, best in search.best.items():
        values = []
        for key, value in best.values.items():
            star = "*" if key in search.at_end else ""
            values.append(f"{key}={_short(value)}{star}")
        row: dict[str, Cell] = {
            "Method": name_of(name),
            "Nats": best.loss,
            "Perplexity": perplexity(best.loss),
            "Values": ", ".join(values),
        }
        if name in TUNABLE:
            row["Default"] = search.default_loss(name)
        if bits is not None:
            row["Bits"] = bits(best.loss)
        rows.append(row)
    notes = []
    if search.at_end:
        notes.append("* the least or the largest value tried: a better one may lie beyond")
    return Table("tuned", "Best on validation", columns, rows, notes)


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
