"""Tables on a console: what is too wide for it is split, so that no name and no number is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from hebblm.report.render import to_rich
from hebblm.report.table import Table

BETWEEN = 2  # columns of text between two cells: padding and divider
EDGES = 2


def print_table(table: Table, console: Console) -> None:
    """Print a table, in parts one below the other where the console is too narrow for it."""
    for part in fitting(table, console.width):
        console.print(Text(part.title, style="bold"))
        natural = Measurement.get(console, console.options.update(max_width=1 << 16), to_rich(part)).maximum
        console.print(to_rich(part, None if natural <= console.width else widths_within(part, console.width)))
        for note in part.notes:
            console.print(Text(note, style="dim"))


def widths_within(table: Table, width: int) -> list[int]:
    """Return the widths of the columns: as little as each needs, and what is left for the columns of sentences."""
    widths = least_widths(table)
    wide = [at for at, column in enumerate(table.columns) if column.wide]
    spare = width - EDGES - sum(widths) - BETWEEN * (len(widths) - 1)
    for at in wide:
        widths[at] += max(0, spare // len(wide))
    return widths


def fitting(table: Table, width: int) -> list[Table]:
    """Return a table as parts that fit a width, each with the first column; a single column may still be too wide.

    Args:
        table: of any width.
        width: in columns of text.
    """
    groups = groups_that_fit(least_widths(table), width)
    return [
        replace(
            table,
            title=table.title if at == 0 else f"{table.title} (continued)",
            columns=tuple(table.columns[index] for index in group),
            rows=tuple(tuple(row[index] for index in group) for row in table.rows),
            notes=table.notes if at == len(groups) - 1 else (),
        )
        for at, group in enumerate(groups)
    ]


def groups_that_fit(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part: the first one, and as many of the next ones as there is room for.

    Args:
        widths: of the columns.
        width: of the console.
    """
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
    """Return how wide each column must be: its cells unbroken, sentences and its title between words."""
    second = table.header_row or [""] * len(table.columns)
    cells = list(zip(*table.text(), strict=True)) or [()] * len(table.columns)
    widths = []
    for at, column in enumerate(table.columns):
        words = [*column.header.split(), *second[at].split()]
        words += [word for cell in cells[at] for word in (cell.split() if column.wide else [cell])]
        widths.append(max(map(len, words), default=0))
    return widths
