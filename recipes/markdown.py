"""Parts of the pages that are written from results: a table's body, and what made a result."""

from __future__ import annotations

from pathlib import Path

from hebblm.report import Result
from hebblm.report.render.table import to_markdown
from hebblm.report.result.numbers import display
from hebblm.report.result.parts import Gain
from hebblm.report.tables.table import Table

ROOT = Path(__file__).resolve().parents[1]


def origin_of(name: str, path: Path, result: Result, up: str) -> str:
    """Return the origin of a result, with a link to it from a page ``up`` folders below the
    root.
    """
    by = result.provenance
    where = f"{up}{path.relative_to(ROOT).as_posix()}"
    return (
        f"[{name}]({where}), `{by['command']}`, commit `{str(by['commit'])[:12]}`, seed "
        f"{by['seed']}"
    )


def gain_text(gain: Gain, decimals: int = 3) -> str:
    """Return a gain with half of its interval, and a star where that leaves out 0."""
    return display(gain.interval, "tested", decimals)


def body(table: Table) -> str:
    """Return a table as Markdown without its title."""
    return to_markdown(table).partition("\n\n")[2]
