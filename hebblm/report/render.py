"""Tables as console output, aligned text, Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from hebblm.report.numbers import INFINITY
from hebblm.report.table import Cell, Table
from hebblm.report.templating import HTML, MARKDOWN


def to_rich(table: Table, widths: Sequence[int] | None = None) -> RichTable:
    """Return the cells of a table for a console, without its title and notes, the best cell of a column in bold.

    Args:
        table: of any width.
        widths: of the columns, to be kept to; by default rich chooses them.
    """
    rich = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    second = table.header_row
    for index, column in enumerate(table.columns):
        header = Text(column.header)
        if second is not None:
            header.append(f"\n{second[index]}", style="dim not bold")
        rich.add_column(
            header,
            justify="left" if column.kind == "text" else "right",
            overflow="fold",
            width=None if widths is None else widths[index],
        )
    for heads, cells in table.lines():
        if heads:
            rich.add_section()
        rich.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in cells))
    return rich


def to_text(table: Table) -> str:
    """Return the cells as a Markdown table whose columns are aligned, to be read as it is."""
    lines = [table.single_headers(), *table.text()]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    left = [column.kind == "text" for column in table.columns]
    rules = [f":{'-' * (w - 1)}" if at else f"{'-' * (w - 1)}:" for w, at in zip(widths, left, strict=True)]
    aligned = [
        [cell.ljust(w) if at else cell.rjust(w) for cell, w, at in zip(line, widths, left, strict=True)]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (aligned[0], rules, *aligned[1:]))


def to_markdown(table: Table, *, level: int = 2) -> str:
    """Return a GitHub-flavoured Markdown table with its title as a heading of ``level`` and its notes below."""
    return MARKDOWN.get_template("table.md.j2").render(table=table, level=level)


def to_html(table: Table, *, level: int = 2) -> str:
    """Return a table under its heading of ``level``, the best cells marked, its notes below; all text escaped."""
    return HTML.get_template("table.html.j2").render(table=table, level=level)


def to_csv(table: Table) -> str:
    """Return CSV with full precision; what does not exist is empty, an infinite value ``inf``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.single_headers())
    if table.counted:
        writer.writerow([column.subheader for column in table.columns])
    writer.writerows([_csv_cell(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def _csv_cell(cell: Cell) -> str | float:
    """Return a cell that a program reads back to the same value."""
    if isinstance(cell, float):
        return repr(cell) if math.isfinite(cell) else INFINITY
    return "" if cell is None else cell
