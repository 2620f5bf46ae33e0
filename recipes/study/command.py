"""``python -m recipes.study``: the results book, cost against goals, and measurements with the floors under them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hebblm.bench import adapt, evaluate, retrieve
from hebblm.bench.record import Row
from hebblm.bench.session import run_bench
from hebblm.cli.bench import MEASUREMENTS, lines
from hebblm.cli.common import guarded, parse
from hebblm.errors import UserError
from hebblm.files import write_text
from hebblm.provenance import command_line
from hebblm.report.render import to_markdown
from recipes.study.book import contents, load_sources, write_book
from recipes.study.book.contents import TITLE
from recipes.study.cost.measured import with_floors
from recipes.study.cost.record import floors_of, load
from recipes.study.cost.tables import cost_tables

PROG = "python -m recipes.study"
MODULES: dict[str, Any] = {"adapt": adapt, "retrieve": retrieve, "eval": evaluate}


@dataclass(frozen=True, slots=True)
class BookConfig:
    """Options of the book: its results, and where to.

    Args:
        results: folder whose JSON files are taken, those in folders below it as well.
        output_path: folder for book.md, book.tex, book.html and figures/.
    """

    results: Path = field(metadata={"positional": True})
    output_path: Path = Path("results/book")


@dataclass(frozen=True, slots=True)
class CostConfig:
    """Options of a table of costs: its measurements, and where to.

    Args:
        files: JSON files of this command's bench or of hebblm-bench.
        output_path: Markdown file; by default standard output.
    """

    files: list[Path] = field(metadata={"positional": True, "nargs": "+"})
    output_path: Path | None = None


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    verbs = {"book": _book, "cost": _cost, "bench": _bench}
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in ("-h", "--help"):
        print(f"usage: {PROG} {{{','.join(verbs)}}} ...   (each has its own --help)")
        return 0
    if name not in verbs:
        raise UserError(f"unknown subcommand {name!r}; choose {', '.join(verbs)}")
    verbs[name](rest)
    return 0


def _book(argv: list[str]) -> None:
    """Write the results book."""
    config = parse(
        BookConfig,
        argv,
        prog=f"{PROG} book",
        description="The results book: every run under a folder beside the paper, nothing in it typed by hand.",
        example=f"{PROG} book recipes/results --output-path results/book",
    )
    written = write_book(TITLE, contents(load_sources(config.results)), config.output_path)
    print(f"Wrote {len(written)} files to {config.output_path}")


def _cost(argv: list[str]) -> None:
    """Write the goals, what was measured and the floors under it as Markdown."""
    config = parse(
        CostConfig,
        argv,
        prog=f"{PROG} cost",
        description="Goals beside what was measured, and how far above its floor that is, as Markdown.",
        example=f"{PROG} cost recipes/results/bench/*.json",
    )
    text = "\n".join(to_markdown(table) for table in cost_tables([load(path) for path in config.files]))
    if config.output_path is None:
        print(text)
    else:
        write_text(config.output_path, text)


def _bench(argv: list[str]) -> None:
    """Measure as hebblm-bench does, and the floors beside it; print the rows as they come."""
    kind, rest = (argv[0], argv[1:]) if argv else ("", [])
    if kind not in MODULES:
        raise UserError(f"no floors are known of {kind!r}; choose {', '.join(MODULES)}")
    known, module = MEASUREMENTS[kind], MODULES[kind]
    config = parse(
        known.config,
        rest,
        prog=f"{PROG} bench {kind}",
        description=f"{known.description} With the least that each could cost on this machine.",
        example=known.example.replace("hebblm-bench", f"{PROG} bench"),
    )
    cases, command = (
        module.case_count(config),
        command_line("python", ["-m", "recipes.study", "bench", *argv]),
    )
    run_bench(kind, config, cases, module.measure, command=command, finished=_show, noted=with_floors)


def _show(row: Row) -> None:
    """Print a row, and how many times its floor each cost is."""
    above = [
        f"  {name:<20}{row.milliseconds(name) / floor.milliseconds:>10.3g} times the floor of {floor.milliseconds:.3g}"
        for name, floor in floors_of(row).items()
    ]
    print("\n".join([*lines(row), *above]), flush=True)
