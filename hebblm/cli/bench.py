"""``hebblm-bench``: the cost of adaptation, retrieval, evaluation and training, beside their plain forms."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hebblm.bench.configs import AdaptConfig, EvalConfig, RetrieveConfig, TrainConfig
from hebblm.cli.common import Main, choosing, options, parse, tell
from hebblm.errors import UserError
from hebblm.files import write_text
from hebblm.models.device import check_device
from hebblm.provenance import command_line

if TYPE_CHECKING:  # it loads torch, and is imported once the command line is known to make sense
    from hebblm.bench.record import Row

PROG = "hebblm-bench"


class Measurement(NamedTuple):
    """A subcommand that measures: its options, and the module with ``case_count`` and ``measure``."""

    config: Any
    module: str
    description: str
    example: str


MEASUREMENTS = {
    "adapt": Measurement(
        AdaptConfig,
        "adapt",
        "Cost of MbPA, Hebb and the continuous cache, of MbPA over a whole network, and error of the fast form.",
        f"{PROG} adapt --checkpoint small-ptb-raw --threads 2 --json adapt.json",
    ),
    "retrieve": Measurement(
        RetrieveConfig,
        "retrieve",
        "Cost and recall of the memory's index against exact search.",
        f"{PROG} retrieve --entries 10000 100000 1000000 3000000 --json retrieve.json",
    ),
    "eval": Measurement(
        EvalConfig,
        "evaluate",
        "Cost of a whole evaluation with all methods against the unadapted model.",
        f"{PROG} eval --memory-sizes 10000 100000 1000000 --json eval.json",
    ),
    "train": Measurement(
        TrainConfig,
        "train",
        "Speed and memory of training against torch.nn.LSTM with a full softmax.",
        f"{PROG} train --preset tiny small --json train.json",
    ),
}


SMOKE = {
    "adapt": "--dim 32 --vocabulary 500 --windows 50 --neighbors 8 --k 16 --batch 20 --entries 200 --error-tokens 20 "
    "--heads gpt2 --network-hidden 20 --network-entries 50 --network-neighbors 8 --network-steps 1",
    "retrieve": "--dim 32 --entries 500 2000 --k 16 --batch 20 --recall-queries 20",
    "eval": "--arch awd_lstm_tiny --vocabulary 500 --memory-sizes 500 1000 --k 16 --batch 20 --tokens 100 "
    "--currency-tokens 40 --stream-tokens 200",
    "train": "--preset tiny --vocabulary 500 --segments 2",
}
"""Options of ``--scale smoke``, before those of the user."""


@dataclass(frozen=True)
class TableConfig:
    """Options of the table: its measurements, and where to.

    Args:
        files: JSON files of hebblm-bench.
        output_path: Markdown file; by default standard output.
    """

    files: list[Path] = field(metadata={"positional": True, "nargs": "+"})
    output_path: Path | None = None


@dataclass(frozen=True)
class PlotConfig:
    """Options of the plot: its measurements, and where to.

    Args:
        files: JSON files of hebblm-bench.
        output_path: file of the plot, .png or .svg.
    """

    files: list[Path] = field(metadata={"positional": True, "nargs": "+"})
    output_path: Path = Path("bench.png")

    def __post_init__(self) -> None:
        if self.output_path.suffix not in (".png", ".svg"):
            raise UserError(f"output_path = {self.output_path} must end in .png or .svg")


def _measure(name: str, argv: list[str]) -> int:
    """Run a measurement and print its rows as they come."""
    chosen, command = MEASUREMENTS[name], command_line(PROG, [name, *argv])
    config = parse(
        chosen.config,
        [*SMOKE[name].split(), *argv] if _smoke(argv) else argv,
        prog=f"{PROG} {name}",
        description=chosen.description,
        example=chosen.example,
    )
    check_device(config.device)
    from hebblm.bench.session import run_bench

    module = import_module(f"hebblm.bench.{chosen.module}")

    def show(row: Row) -> None:
        for line in lines(row):
            tell(line)

    run_bench(name, config, module.case_count(config), module.measure, command=command, finished=show)
    if config.json is not None:
        tell(f"measurements in {config.json}")
    return 0


def _smoke(argv: list[str]) -> bool:
    """Say whether a small run is asked for; of repeated options the last counts."""
    values = [following for word, following in pairwise(argv) if word == "--scale"]
    values += [word.removeprefix("--scale=") for word in argv if word.startswith("--scale=")]
    return values[-1:] == ["smoke"]


def lines(row: Row) -> list[str]:
    """Return a row as a reader wants it: what it is about, ratios, costs, what else was found."""
    from hebblm.bench.tables import described

    found = [described(row)]
    for name, timing in row.timings.items():
        cost = timing.milliseconds()
        found.append(f"  {name:<20}{cost.median:>10.4g} ms a token ({cost.low:.4g} to {cost.high:.4g})")
        if name in row.references:
            ratio, plain = row.faster(name), row.references[name]
            found.append(f"{'':22}{ratio.median:>10.4g} x {plain} ({ratio.low:.4g} to {ratio.high:.4g})")
    found += [f"  {name:<20}{value:>10.4g}" for name, value in row.values.items()]
    return found


@options(f"{PROG} table", TableConfig, f"{PROG} table adapt.json retrieve.json eval.json")
def _table(config: TableConfig, argv: list[str]) -> None:
    """Every cost beside that of its plain form, as Markdown."""
    from hebblm.bench.record import BenchResult
    from hebblm.bench.tables import cost_tables
    from hebblm.report.render import to_markdown

    tables = cost_tables([BenchResult.load(path) for path in config.files])
    text = "\n".join(to_markdown(table) for table in tables)
    if config.output_path is None:
        print(text)
    else:
        write_text(config.output_path, text)


@options(f"{PROG} plot", PlotConfig, f"{PROG} plot adapt.json retrieve.json eval.json --output-path cost.png")
def _plot(config: PlotConfig, argv: list[str]) -> None:
    """Cost against memory size, vocabulary and steps."""
    from hebblm.bench.plots import cost_figure
    from hebblm.bench.record import BenchResult
    from hebblm.report.plots import save

    save(cost_figure([BenchResult.load(path) for path in config.files]), config.output_path)


def _measuring(name: str) -> Main:
    """Return the subcommand of a measurement, with its description."""

    def measuring(argv: list[str] | None = None) -> int:
        return _measure(name, argv or [])

    measuring.__doc__ = MEASUREMENTS[name].description
    return measuring


main = choosing(PROG, {**{name: _measuring(name) for name in MEASUREMENTS}, "table": _table, "plot": _plot})


if __name__ == "__main__":
    sys.exit(main())
