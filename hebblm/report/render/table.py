"""Tables on a console, as aligned text, Markdown, CSV and HTML.

A template escapes all values for its language.
"""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from hebblm.report.result.numbers import INFINITY, Cell, Interval, display
from hebblm.report.tables.table import Column, Table

_MARKDOWN_SPECIALS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_|<>[]"} | {"\n": " "})


def markdown_escape(text: str) -> str:
    """Escape ``text`` so that it cannot end a Markdown cell or contain markup."""
    return text.translate(_MARKDOWN_SPECIALS)


def source(name: str) -> str:
    """Return a file from the folder of the templates, such as a style sheet."""
    return files("hebblm.report").joinpath("templates", name).read_text("utf-8")


def environment(
    escape: Callable[[str], str], loader: BaseLoader | None = None, **delimiters: Any
) -> Environment:
    """Return the templates of a loader, by default this package's; values that are not markup are
    escaped.
    """
    templates = Environment(
        loader=loader or PackageLoader("hebblm.report"),
        autoescape=True,  # macros and includes stay markup; `finalize` has escaped the rest by then
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )
    templates.filters |= {"lines": lines, "headers": single_headers, "subheaders": subheaders}
    templates.tests["counted"] = counted
    return templates


class ShownCell(NamedTuple):
    """Cell of a table as a reader sees it."""

    text: str
    numeric: bool  # whether its column holds numbers
    best: bool  # whether it is the best of its column


def texts(table: Table) -> list[list[str]]:
    """Return every cell as a reader sees it."""
    shown = []
    for cells in table.cells():
        row = []
        for cell, column in zip(cells, table.columns, strict=True):
            row.append(display(cell, column.kind, column.decimals))
        shown.append(row)
    return shown


def lines(table: Table) -> list[tuple[bool, list[ShownCell]]]:
    """Return rows as a reader sees them, each with whether it heads a block."""
    best = best_cells(table)
    shown = []
    for at, row in enumerate(texts(table)):
        cells = []
        for index, column in enumerate(table.columns):
            cells.append(ShownCell(row[index], column.kind != "text", (at, index) in best))
        shown.append((at in table.headings, cells))
    return shown


def best_cells(table: Table) -> set[tuple[int, int]]:
    """Return (row, column) of the best cells.

    Cells that read the same as the best one of their block share the honour; if all read the same,
    there is none.
    """
    shown = texts(table)
    best: set[tuple[int, int]] = set()
    ends = sorted({0, len(table.rows)}.union(table.headings))
    for index, column in enumerate(table.columns):
        if column.best is None:
            continue
        cells = table.column(column.key)
        for start, stop in pairwise(ends):
            numbers: dict[int, float] = {}
            for at in range(start, stop):
                cell = cells[at]
                if isinstance(cell, int | float):
                    numbers[at] = cell
            if not numbers:
                continue
            choose = min if column.best == "min" else max
            winner = shown[choose(numbers, key=numbers.__getitem__)][index]
            winners = {at for at in numbers if shown[at][index] == winner}
            if len(winners) < len(numbers):
                best |= {(at, index) for at in winners}
    return best


def counted(table: Table) -> bool:
    """Whether the second header line holds numbers."""
    return any(isinstance(column.subheader, int) for column in table.columns)


def subheaders(table: Table) -> list[str]:
    """Return the second header line as text; nothing without one."""
    if all(column.subheader == "" for column in table.columns):
        return []
    return [display(column.subheader, "count") for column in table.columns]


def single_headers(table: Table) -> list[str]:
    """Return one title a column, for one line only: sources go into brackets, numbers are left
    out.
    """
    headers = []
    for column in table.columns:
        header = column.header
        if column.subheader and not counted(table):
            header = f"{header} ({column.subheader})"
        headers.append(header)
    return headers


HTML = environment(html.escape)
MARKDOWN = environment(markdown_escape)


def to_rich(table: Table, widths: Sequence[int] | None = None) -> RichTable:
    """Cells of a table for a console, without its title and notes, the best cell of a column in
    bold.
    """
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    second = subheaders(table)
    for index, column in enumerate(table.columns):
        header = Text(column.header)
        if second:
            header.append(f"\n{second[index]}", style="dim not bold")
        rich.add_column(
            header,
            justify="left" if column.kind == "text" else "right",
            overflow="fold",
            width=None if widths is None else widths[index],
        )
    for heads, cells in lines(table):
        if heads:
            rich.add_section()
        row = []
        for cell in cells:
            row.append(Text(cell.text, style="bold" if cell.best else ""))
        rich.add_row(*row)
    return rich


def to_text(table: Table) -> str:
    """Return cells as a Markdown table with aligned columns, readable as plain text."""
    rows = [single_headers(table), [""] * len(table.columns)]
    rows += texts(table)
    for at, column in enumerate(table.columns):
        width = max(len(row[at]) for row in rows)
        for row in rows:
            if column.kind == "text":
                row[at] = row[at].ljust(width)
            else:
                row[at] = row[at].rjust(width)
        # the second line is the rule: a colon on the side where the cells stand
        rows[1][at] = "-" * (width - 1) + ":"
        if column.kind == "text":
            rows[1][at] = rows[1][at][::-1]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def to_markdown(table: Table, *, level: int = 2) -> str:
    """A GitHub-flavoured Markdown table with its title as a heading of ``level`` and its notes
    below.
    """
    return MARKDOWN.get_template("table.md.j2").render(table=table, level=level)


def to_html(table: Table, *, level: int = 2) -> str:
    """A table under its heading of ``level``, the best cells marked, its notes below; all text
    escaped.
    """
    return HTML.get_template("table.html.j2").render(table=table, level=level)


def to_csv(table: Table) -> str:
    """Return CSV with full precision; missing values are empty, an infinite value is ``inf``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(single_headers(table))
    if counted(table):
        writer.writerow([column.subheader for column in table.columns])
    for cells in table.cells():
        row = []
        for cell, column in zip(cells, table.columns, strict=True):
            row.append(_csv_cell(cell, column))
        writer.writerow(row)
    return stream.getvalue()


def _csv_cell(cell: Cell, column: Column) -> str | float:
    if cell is None:
        return ""
    if isinstance(cell, Interval):
        return display(cell, column.kind, column.decimals)
    if isinstance(cell, float):
        return repr(cell) if math.isfinite(cell) else INFINITY
    return cell


BETWEEN = 2  # columns of text between two cells: padding and divider
EDGES = 2


def print_table(table: Table, console: Console) -> None:
    """Print a table; if the console is too narrow, print it in parts one below the other."""
    for part in fitting(table, console.width):
        console.print(Text(part.title, style="bold"))
        unbounded = console.options.update(max_width=1 << 16)
        widths = None
        if Measurement.get(console, unbounded, to_rich(part)).maximum > console.width:
            widths = widths_within(part, console.width)
        console.print(to_rich(part, widths))
        for note in part.notes:
            console.print(Text(note, style="dim"))


def widths_within(table: Table, width: int) -> list[int]:
    """Return the widths of the columns: as little as each needs, and the rest for columns of
    sentences.
    """
    widths = least_widths(table)
    wide = [at for at, column in enumerate(table.columns) if column.wide]
    spare = width - EDGES - sum(widths) - BETWEEN * (len(widths) - 1)
    for at in wide:
        widths[at] += max(0, spare // len(wide))
    return widths


def fitting(table: Table, width: int) -> list[Table]:
    """Split a table into parts that fit a width, each with the first column; one column may still
    be too wide.
    """
    parts: list[Table] = []
    for group in groups_that_fit(least_widths(table), width):
        part = table.narrowed([table.columns[index] for index in group])
        title = table.title
        if parts:
            title = f"{title} (continued)"
        parts.append(replace(part, title=title, notes=()))
    parts[-1] = replace(parts[-1], notes=table.notes)
    return parts


def groups_that_fit(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part: the first one, and as many of the next ones as fit."""
    groups: list[list[int]] = []
    room = 0
    for index in range(1, len(widths)):
        if not groups or widths[index] + BETWEEN > room:
            groups.append([0])
            room = width - EDGES - widths[0]
        groups[-1].append(index)
        room -= widths[index] + BETWEEN
    return groups or [[0]]


def least_widths(table: Table) -> list[int]:
    """Return each column's least width: cells stay unbroken, sentences and titles break between
    words.
    """
    second = subheaders(table)
    rows = texts(table)
    widths = []
    for at, column in enumerate(table.columns):
        words = column.header.split()
        if second:
            words += second[at].split()
        for row in rows:
            if column.wide:
                words += row[at].split()
            else:
                words.append(row[at])
        widths.append(max((len(word) for word in words), default=0))
    return widths
