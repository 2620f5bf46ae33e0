"""Tables as console output, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from hebblm.report.numbers import INFINITY, MISSING
from hebblm.report.table import Cell, Column, Table

_WIDE = 0.5  # of the line, for a column of sentences
_LATEX_SPECIALS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "^": r"\textasciicircum{}",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "%": r"\%",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


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
    best = table.best_cells()
    for at, row in enumerate(table.text()):
        if at in table.headings:
            rich.add_section()
        rich.add_row(
            *(Text(cell, style="bold" if (at, index) in best else "") for index, cell in enumerate(row))
        )
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
    return "\n".join(_markdown_row(line, escape=False) for line in (aligned[0], rules, *aligned[1:]))


def to_markdown(table: Table, *, level: int = 2) -> str:
    """Return a GitHub-flavoured Markdown table with its title as a heading of ``level`` and its notes below."""
    best = table.best_cells()
    rules = [":--" if column.kind == "text" else "--:" for column in table.columns]
    lines = [_markdown_row(table.single_headers()), _markdown_row(rules, escape=False)]
    if table.number_row() is not None:
        lines.append(_markdown_row(table.header_row or []))
    for at, row in enumerate(table.text()):
        cells = [markdown_escape(cell) for cell in row]
        if at in table.headings:
            cells[0] = f"*{cells[0]}*"
        bold = [f"**{cell}**" if (at, index) in best else cell for index, cell in enumerate(cells)]
        lines.append(_markdown_row(bold, escape=False))
    notes = "".join(f"\n{markdown_escape(note)}\n" for note in table.notes)
    return f"{'#' * level} {markdown_escape(table.title)}\n\n" + "\n".join(lines) + "\n" + notes


def to_csv(table: Table) -> str:
    """Return CSV with full precision; what does not exist is empty, an infinite value ``inf``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.single_headers())
    if (numbers := table.number_row()) is not None:
        writer.writerow(numbers)
    writer.writerows([_csv_cell(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def to_latex(table: Table) -> str:
    """Return a LaTeX ``table`` environment for the booktabs package, every text escaped."""
    best = table.best_cells()
    lines = [_latex_row([latex_escape(column.header) for column in table.columns])]
    if (second := table.header_row) is not None:
        lines.append(_latex_row([latex_escape(cell) for cell in second]))
    lines.append(r"\midrule")
    for at, row in enumerate(table.text()):
        if at in table.headings and at > 0:
            lines.append(r"\midrule")
        cells = [
            latex_escape(cell) if column.kind == "text" else _latex_number(cell, bold=(at, index) in best)
            for index, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        ]
        lines.append(_latex_row(cells))
    alignment = "".join(map(_latex_alignment, table.columns))
    caption = " ".join(f"{latex_escape(line).rstrip('.')}." for line in (table.title, *table.notes))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            rf"\label{{table:{_slug(table.title)}}}",
            r"\end{table}",
            "",
        ]
    )


def latex_escape(text: str) -> str:
    """Return ``text`` so that LaTeX prints it character by character."""
    return "".join(_LATEX_SPECIALS.get(character, character) for character in text)


def markdown_escape(text: str) -> str:
    """Return ``text`` so that Markdown neither ends a cell nor reads markup in it."""
    for character in "\\`*_|<>[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def _markdown_row(cells: list[str], *, escape: bool = True) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(markdown_escape(cell) if escape else cell for cell in cells) + " |"


def _latex_row(cells: list[str]) -> str:
    """Return one line of a LaTeX table."""
    return " & ".join(cells) + r" \\"


def _latex_number(text: str, *, bold: bool) -> str:
    """Return a displayed number in LaTeX: true minus signs, powers of ten, the infinity sign."""
    if text == MISSING:
        return "--"
    mantissa, exponent_mark, exponent = text.partition("e")
    if INFINITY in text:
        body = "$" + text.replace(INFINITY, r"\infty") + "$"
    elif exponent_mark:
        body = rf"${mantissa} \times 10^{{{int(exponent)}}}$"
    else:
        body = text.replace("-", "$-$")
    if not bold:
        return body
    return rf"\textbf{{\boldmath {body}}}" if "$" in body else rf"\textbf{{{body}}}"


def _latex_alignment(column: Column) -> str:
    """Return how LaTeX sets a column."""
    if column.wide:
        return rf"p{{{_WIDE}\linewidth}}"
    return "l" if column.kind == "text" else "r"


def _slug(title: str) -> str:
    """Return a title as a label: lower case, words joined by hyphens."""
    return "-".join("".join(character if character.isalnum() else " " for character in title.lower()).split())


def _csv_cell(cell: Cell) -> str | float:
    """Return a cell that a program reads back to the same value."""
    if isinstance(cell, float):
        return repr(cell) if math.isfinite(cell) else INFINITY
    return "" if cell is None else cell
