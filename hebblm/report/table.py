"""A neutral table: typed columns, raw cells, and the best cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal, NamedTuple

from hebblm.report.numbers import Kind, display

Cell = str | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table."""

    header: str
    kind: Kind = "text"
    # which extreme is the best, if the column is a contest between the rows
    best: Literal["min", "max"] | None = None
    # a second line of the title: a source, or a number such as that of tokens
    subheader: str | int = ""
    decimals: int = 4  # of losses and differences
    wide: bool = False  # sentences, which are broken into lines where a page needs it


class Written(NamedTuple):
    """Printed cell of a table."""

    text: str
    numeric: bool  # whether its column holds numbers
    best: bool  # whether it is the best of its column


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values under typed columns; every renderer starts from here."""

    name: str  # a short identifier, also the stem of file names
    title: str
    columns: tuple[Column, ...]  # one a cell of each row
    rows: tuple[tuple[Cell, ...], ...]  # text, numbers, or None for what does not exist
    notes: tuple[str, ...] = ()  # lines below the table
    # rows, by their place, that head a block of those that follow; the best is sought in each block
    headings: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row} has {len(row)} cells for {len(self.columns)} columns")

    @property
    def header_row(self) -> list[str] | None:
        """The second header line as text, or None if there is none."""
        if not any(column.subheader != "" for column in self.columns):
            return None
        return [display(column.subheader, "count") for column in self.columns]

    @property
    def counted(self) -> bool:
        return any(isinstance(column.subheader, int) for column in self.columns)

    @property
    def slug(self) -> str:
        """The title as a label: lower case, words joined by hyphens."""
        return "-".join(re.sub(r"[\W_]", " ", self.title.lower()).split())

    def single_headers(self) -> list[str]:
        """One title a column, for one line only: sources go into brackets, numbers are left out."""
        return [
            f"{column.header} ({column.subheader})"
            if column.subheader and not self.counted
            else column.header
            for column in self.columns
        ]

    def text(self) -> list[list[str]]:
        """Every cell as a reader sees it."""
        return [
            [
                display(cell, column.kind, column.decimals)
                for cell, column in zip(row, self.columns, strict=True)
            ]
            for row in self.rows
        ]

    def lines(self) -> list[tuple[bool, list[Written]]]:
        """Rows as a reader sees them, each with whether it heads a block."""
        best = self.best_cells()
        numeric = [column.kind != "text" for column in self.columns]
        return [
            (
                at in self.headings,
                [
                    Written(cell, numeric[index], (at, index) in best)
                    for index, cell in enumerate(row)
                ],
            )
            for at, row in enumerate(self.text())
        ]

    def best_cells(self) -> frozenset[tuple[int, int]]:
        """(row, column) of the best cells.

        Cells that read the same as the best one of their block share the honour; if all read the
        same, there is none.
        """
        text = self.text()
        best: set[tuple[int, int]] = set()
        blocks = pairwise(sorted({0, *self.headings, len(self.rows)}))
        for (start, stop), (index, column) in product(blocks, enumerate(self.columns)):
            values = {}
            for at in range(start, stop):
                cell = self.rows[at][index]
                if isinstance(cell, (int, float)):
                    values[at] = cell
            if column.best is None or not values:
                continue
            choose: Callable[..., int] = min if column.best == "min" else max
            winner = text[choose(values, key=values.__getitem__)][index]
            winners = {at for at in values if text[at][index] == winner}
            if len(winners) < len(values):
                best |= {(at, index) for at in winners}
        return frozenset(best)


def present(*tables: Table | None) -> list[Table]:
    """Tables that there are, of those that a result may have no data for."""
    return [table for table in tables if table is not None]
