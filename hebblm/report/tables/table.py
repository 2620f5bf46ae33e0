"""A table: named columns, rows of raw values by column, notes.

A renderer formats the values and finds the best ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hebblm.report.result.numbers import Cell, Kind

Row = Mapping[str, Cell]
"""Values by the name of their column; a value that does not exist is None, or left out."""


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
    name: str = ""  # of its values in a row, if not the header; headers may repeat, names may not

    @property
    def key(self) -> str:
        """The name of the column's values in a row."""
        return self.name or self.header


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values under named columns; every renderer starts from here."""

    name: str  # a short identifier, also the stem of file names
    title: str
    columns: Sequence[Column] = field()
    rows: Sequence[Row] = field()
    notes: Sequence[str] = ()  # lines below the table
    # rows, by their place, that head a block of those that follow; the best is sought in each block
    headings: Sequence[int] = ()

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"several columns are called {key!r}; give them names")
        for row in self.rows:
            unknown = row.keys() - set(keys)
            if unknown:
                raise ValueError(f"row {dict(row)} has values for no column: {sorted(unknown)}")
        for part in ("columns", "rows", "notes", "headings"):
            object.__setattr__(self, part, tuple(getattr(self, part)))

    @classmethod
    def of_cells(
        cls,
        name: str,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Cell]],
        notes: Sequence[str] = (),
        headings: Sequence[int] = (),
    ) -> Table:
        """Return a table whose rows are given as cells, one for each column in order.

        A column with the header of an earlier one is named by its place as well.
        """
        named: list[Column] = []
        for at, column in enumerate(columns):
            taken = any(column.key == other.key for other in named)
            named.append(replace(column, name=f"{column.key} {at}") if taken else column)
        filled = []
        for cells in rows:
            if len(cells) != len(named):
                raise ValueError(f"row {cells} has {len(cells)} cells for {len(named)} columns")
            filled.append({column.key: cell for column, cell in zip(named, cells, strict=True)})
        return cls(name, title, named, filled, notes, headings)

    def cells(self) -> list[tuple[Cell, ...]]:
        """Return the rows as cells in the order of the columns."""
        return [tuple(row.get(column.key) for column in self.columns) for row in self.rows]

    def column(self, key: str) -> list[Cell]:
        """Return the values of a column, row by row."""
        return [row.get(key) for row in self.rows]

    def without_empty(self) -> Table:
        """Return the table without columns in which no row has a value."""
        kept = []
        for column in self.columns:
            if any(value is not None for value in self.column(column.key)):
                kept.append(column)
        return self.narrowed(kept)

    def narrowed(self, columns: Sequence[Column]) -> Table:
        """Return the table with some of its columns alone."""
        rows = []
        for row in self.rows:
            rows.append({column.key: row.get(column.key) for column in columns})
        return replace(self, columns=columns, rows=rows)


def present(*tables: Table | None) -> list[Table]:
    """Tables that there are, of those that a result may have no data for."""
    return [table for table in tables if table is not None]
