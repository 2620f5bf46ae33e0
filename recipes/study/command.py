"""``python -m recipes.study``: the book, goals of cost, results next to the paper, what the paper
leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from hebblm.adapt.methods import PUBLISHED, named
from hebblm.cli.common import choosing, options, print_line
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.io.files import write_text
from hebblm.io.provenance import command_line
from hebblm.report import Result
from hebblm.report.render.table import print_table, to_markdown
from hebblm.runtime.interrupts import GOES_ON, interrupted
from recipes.bench.record import BenchResult
from recipes.study.book import contents, load_sources, write_book
from recipes.study.book.contents import TITLE
from recipes.study.cost.tables import cost_tables
from recipes.study.paper import paper_tables
from recipes.study.readings.compare import compare
from recipes.study.readings.record import readings_table

PROG = "python -m recipes.study"


@dataclass(frozen=True, slots=True)
class BookConfig:
    """Options of the book: its results, and where to.

    Args:
        results: folder whose JSON files are taken, those in folders below it as well.
        output_path: folder for book.md, book.tex, book.html and figures/.
    """

    results: Path = field(metadata={"positional": True})
    output_path: Path = Path("results/book")


@options(f"{PROG} book", BookConfig, f"{PROG} book recipes/results --output-path results/book")
def _book(config: BookConfig, argv: list[str]) -> None:
    """The results book: every run under a folder next to the paper, nothing in it typed by hand."""
    written = write_book(TITLE, contents(load_sources(config.results)), config.output_path)
    print(f"Wrote {len(written)} files to {config.output_path}")


@dataclass(frozen=True, slots=True)
class CostConfig:
    """Options of the tables of cost.

    Args:
        files: JSON files of the measurements.
        output_path: Markdown file; by default standard output.
    """

    files: list[Path] = field(metadata={"positional": True, "nargs": "+"})
    output_path: Path | None = None


@options(f"{PROG} cost", CostConfig, f"{PROG} cost recipes/results/bench/*.json")
def _cost(config: CostConfig, argv: list[str]) -> None:
    """Goals next to what was measured, and how far above its floor that is, as Markdown."""
    text = "\n".join(
        map(to_markdown, cost_tables([BenchResult.load(path) for path in config.files]))
    )
    if config.output_path is None:
        print(text)
    else:
        write_text(config.output_path, text)


@dataclass(frozen=True, slots=True)
class PaperConfig:
    """Options of the tables next to the paper.

    Args:
        results: folders that hebblm-eval wrote, or their result.json.
    """

    results: list[Path] = field(metadata={"positional": True, "nargs": "+"})


@options(f"{PROG} paper", PaperConfig, f"{PROG} paper results/wt2-to-ptb")
def _paper(config: PaperConfig, argv: list[str]) -> None:
    """Results on the paper's texts next to its own numbers, as Markdown."""
    found = [(path, paper_tables(Result.load(path))) for path in config.results]
    for path, tables in found:
        print(
            "\n".join(map(to_markdown, tables))
            or f"{path}: the paper has no numbers for this scenario"
        )


@dataclass(frozen=True)
class ReadingsConfig(ScenarioConfig):
    """Options of a comparison of readings.

    Args:
        methods: comma-separated; those that retrieve are compared.
        hyperparameters: of the default reading: default, tuned, paper, or a file of hebblm-tune.
        set: hyper-parameters, e.g. --set hebb.beta=0.5.
        output_path: folder for readings.json.
    """

    methods: str = ",".join(PUBLISHED)
    hyperparameters: str = "default"
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    output_path: Path | None = None


@options(
    f"{PROG} readings",
    ReadingsConfig,
    f"{PROG} readings --intra-domain ptb --split valid --max-tokens 5000",
)
def _compare(config: ReadingsConfig, argv: list[str]) -> None:
    """What the paper leaves open, one reading at a time, by the methods that retrieve; written to
    readings.json.
    """
    found = compare(
        config.scenario(),
        named(config.methods),
        config.hyperparameters,
        parse_settings(config.set),
        config.output_path,
        command_line(f"{PROG} readings", argv),
    )
    print_table(readings_table({found.label: found}), Console())
    if config.output_path is not None:
        print_line(f"readings in {config.output_path}")


main = choosing(
    PROG,
    {"book": _book, "cost": _cost, "paper": _paper, "readings": interrupted(GOES_ON)(_compare)},
)
