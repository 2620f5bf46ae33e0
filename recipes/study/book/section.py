"""Sections of the book, before any format."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from hebblm.report.table import Table


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot.

    Args:
        name: stem of its file, unique within the book.
        caption: what it shows.
        figure: the plot.
    """

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the book under one heading.

    Args:
        title: of the heading.
        lines: paragraphs.
        tables: below them.
        pictures: below these.
        level: 1 for a chapter, 2 for a run within one.
    """

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    level: int = 1
