"""``hebblm-bench``: the cost of adaptation, retrieval, evaluation and training, beside their plain forms."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from hebblm.bench.configs import AdaptConfig, EvalBenchConfig, RetrieveConfig, TrainBenchConfig
from hebblm.cli.common import Main, choosing, options, parse, tell
from hebblm.errors import UserError
from hebblm.files import write_text
from hebblm.models.device import check_device

if TYPE_CHECKING:  # they load torch, and are imported once the command line is known to make sense
    from hebblm.bench.record import Row
    from hebblm.report.table import Table

PROG = "hebblm-bench"


class Measurement(NamedTuple):
    """A subcommand that measures: its options, the module with its ``cases``, what it is, and options to try."""

    config: Any
    module: str
    description: str
    example: str


MEASUREMENTS = {
    "adapt": Measurement(
        AdaptConfig,
        "hebblm.bench.adapt",
        "Cost of MbPA, Hebb and the continuous cache, of MbPA over a whole network, and error of the fast form.",
        "--checkpoint small-ptb-raw --threads 2 --json adapt.json",
    ),
    "retrieve": Measurement(
        RetrieveConfig,
        "hebblm.bench.retrieve",
        "Cost and recall of the memory's index against exact search.",
        "--entries 10000 100000 1000000 --json retrieve.json",
    ),
    "eval": Measurement(
        EvalBenchConfig,
        "hebblm.bench.evaluate",
        "Cost of a whole evaluation with all methods against the unadapted model.",
        "--memory-sizes 10000 100000 1000000 --json eval.json",
    ),
    "train": Measurement(
        TrainBenchConfig,
        "hebblm.bench.train",
        "Speed and memory of training against torch.nn.LSTM with a full softmax.",
        "--preset tiny small --json train.json",
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


def shown(row: Row) -> Row:
    """Print a row and return it."""
    from hebblm.bench.tables import row_table
    from hebblm.report.console import print_table

    print_table(row_table(row), Console())
    return row


def measuring(kind: str, prog: str = PROG, finished: Callable[[Row], Row] = shown) -> Main:
    """Return the subcommand that takes a measurement.

    Args:
        kind: of :data:`MEASUREMENTS`.
        prog: name of the command that it belongs to.
        finished: as :func:`hebblm.bench.session.run_bench` takes it.
    """
    chosen = MEASUREMENTS[kind]

    def measure(argv: list[str] | None = None) -> int:
        words = argv or []
        config = parse(
            chosen.config,
            [*SMOKE[kind].split(), *words] if _smoke(words) else words,
            prog=f"{prog} {kind}",
            description=chosen.description,
            example=f"{prog} {kind} {chosen.example}",
        )
        check_device(config.device)
        from hebblm.bench.session import run_bench

        cases = import_module(chosen.module).cases
        run_bench(kind, config, cases, command=f"{prog} {shlex.join([kind, *words])}", finished=finished)
        if config.json is not None:
            tell(f"measurements in {config.json}")
        return 0

    measure.__doc__ = chosen.description
    return measure


def _smoke(argv: list[str]) -> bool:
    """Say whether a small run is asked for; of repeated options the last counts."""
    values = [following for word, following in pairwise(argv) if word == "--scale"]
    values += [word.removeprefix("--scale=") for word in argv if word.startswith("--scale=")]
    return values[-1:] == ["smoke"]


@options(f"{PROG} table", TableConfig, f"{PROG} table adapt.json retrieve.json eval.json")
def _table(config: TableConfig, argv: list[str]) -> None:
    """Every cost beside that of its plain form, as Markdown."""
    from hebblm.bench.record import BenchResult
    from hebblm.bench.tables import cost_tables

    write_tables(cost_tables([BenchResult.load(path) for path in config.files]), config.output_path)


def write_tables(tables: Sequence[Table], path: Path | None) -> None:
    """Write tables as Markdown; without a path they are printed."""
    from hebblm.report.render import to_markdown

    text = "\n".join(map(to_markdown, tables))
    if path is None:
        print(text)
    else:
        write_text(path, text)


@options(f"{PROG} plot", PlotConfig, f"{PROG} plot adapt.json retrieve.json eval.json --output-path cost.png")
def _plot(config: PlotConfig, argv: list[str]) -> None:
    """Cost against memory size, vocabulary and steps."""
    from hebblm.bench.plots import cost_figure
    from hebblm.bench.record import BenchResult
    from hebblm.report.plots import save

    save(cost_figure([BenchResult.load(path) for path in config.files]), config.output_path)


main = choosing(PROG, {**{kind: measuring(kind) for kind in MEASUREMENTS}, "table": _table, "plot": _plot})
