"""Tables on a console, as aligned text, Markdown, CSV and HTML, and the templates of pages.

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
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from hebblm.report.numbers import INFINITY
from hebblm.report.table import Cell, Table

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
    return Environment(
        loader=loader or PackageLoader("hebblm.report"),
        autoescape=True,  # macros and includes stay markup; `finalize` has escaped the rest by then
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )


HTML = environment(html.escape)
MARKDOWN = environment(markdown_escape)


def to_rich(table: Table, widths: Sequence[int] | None = None) -> RichTable:
    """Cells of a table for a console, without its title and notes, the best cell of a column in
    bold.
    """
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
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
    """Return cells as a Markdown table with aligned columns, readable as plain text."""
    headers = table.single_headers()
    body = table.text()
    # the header, the rule below it, and the rows
    lines: list[list[str]] = [[] for _ in range(len(body) + 2)]
    for at, column in enumerate(table.columns):
        cells = [headers[at]] + [row[at] for row in body]
        width = max(len(cell) for cell in cells)
        if column.kind == "text":
            rule = ":" + "-" * (width - 1)
            cells = [cell.ljust(width) for cell in cells]
        else:
            rule = "-" * (width - 1) + ":"
            cells = [cell.rjust(width) for cell in cells]
        for line, cell in zip(lines, [cells[0], rule, *cells[1:]], strict=True):
            line.append(cell)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    writer.writerow(table.single_headers())
    if table.counted:
        writer.writerow([column.subheader for column in table.columns])
    writer.writerows([_csv_cell(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def _csv_cell(cell: Cell) -> str | float:
    if isinstance(cell, float):
        return repr(cell) if math.isfinite(cell) else INFINITY
    return "" if cell is None else cell


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
        columns = tuple(table.columns[index] for index in group)
        rows = tuple(tuple(row[index] for index in group) for row in table.rows)
        title = f"{table.title} (continued)" if parts else table.title
        parts.append(replace(table, title=title, columns=columns, rows=rows, notes=()))
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
    second = table.header_row or [""] * len(table.columns)
    rows = table.text()
    widths = []
    for at, column in enumerate(table.columns):
        words = column.header.split() + second[at].split()
        for row in rows:
            if column.wide:
                words += row[at].split()
            else:
                words.append(row[at])
        widths.append(max((len(word) for word in words), default=0))
    return widths
