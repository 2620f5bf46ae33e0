"""``python -m recipes.study``: the results book, cost against goals, and measurements with the floors under them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hebblm.cli.common import choosing, options, tell
from hebblm.errors import UserError
from hebblm.files import write_text
from hebblm.report.render import to_markdown
from recipes.bench.command import measuring, shown
from recipes.bench.record import Row
from recipes.study.book import contents, load_sources, write_book
from recipes.study.book.contents import TITLE
from recipes.study.cost.measured import with_floors
from recipes.study.cost.record import load
from recipes.study.cost.tables import cost_tables

PROG = "python -m recipes.study"
FLOORED = ("adapt", "retrieve", "eval")


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
    """The results book: every run under a folder beside the paper, nothing in it typed by hand."""
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
    """Goals beside what was measured, and how far above its floor that is, as Markdown."""
    text = "\n".join(map(to_markdown, cost_tables([load(path) for path in config.files])))
    if config.output_path is None:
        print(text)
    else:
        write_text(config.output_path, text)


def _bench(argv: list[str] | None = None) -> int:
    """Measure as recipes.bench does, with the least that each could cost on this machine."""
    kind, *rest = argv or [""]
    if kind not in FLOORED:
        raise UserError(f"no floors are known of {kind!r}; choose {', '.join(FLOORED)}")
    return measuring(kind, f"{PROG} bench", _floored)(rest)


def _floored(row: Row) -> Row:
    """Return a row with its floors; print it, and how many times its floor each cost is."""
    found = with_floors(row)
    shown(found)
    for name, floor in found.floors.items():
        times = row.milliseconds(name) / floor.milliseconds
        tell(f"  {name:<20}{times:>10.3g} times the floor of {floor.milliseconds:.3g}")
    return found


main = choosing(PROG, {"book": _book, "cost": _cost, "bench": _bench})
