"""Sections of the book, before any format."""

from __future__ import annotations

from dataclasses import dataclass

from hebblm.report.plots.drawing import Picture
from hebblm.report.tables.table import Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the book under one heading."""

    title: str  # of the heading
    lines: tuple[str, ...] = ()  # paragraphs
    tables: tuple[Table, ...] = ()  # below them
    pictures: tuple[Picture, ...] = ()  # below these
    level: int = 1  # 1 for a chapter, 2 for a run within one
