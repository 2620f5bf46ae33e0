"""Tables and plots of a result of any image experiment, printed or as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from hebblm.files import write_text
from hebblm.report import plots, render
from hebblm.report.console import print_table
from hebblm.report.methods import PLOTTED
from hebblm.report.table import Table
from hebblm.report.templating import markdown_escape
from hebblm.vision.new_classes import document as new_classes
from hebblm.vision.new_classes.tables import tables as class_tables
from hebblm.vision.permuted_mnist import document as permuted_mnist
from hebblm.vision.permuted_mnist.result import EXPERIMENT as PERMUTED_MNIST
from hebblm.vision.verdict import verdict

REPORT = "report.md"
LATEX = "tables.tex"


def tables(document: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a result, in their order."""
    if document["experiment"] == PERMUTED_MNIST:
        return [permuted_mnist.summary_table(document)]
    return class_tables(document)


def figures(document: Mapping[str, Any], *, most: int = PLOTTED) -> dict[str, tuple[str, Figure]]:
    """Return the plots of a result: by file name, what each shows and the figure, of ``most`` lines (0 for all)."""
    if document["experiment"] == PERMUTED_MNIST:
        return permuted_mnist.figures(document, most)
    return new_classes.figures(document, most)


def print_summary(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdict and the tables."""
    console.print(Text(f"{verdict(document)}\n", style="bold"))
    for table in tables(document):
        print_table(table, console)


def write_report(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``report.md``, which begins with the verdict, ``tables.tex`` and the plots.

    Args:
        document: what ``result.json`` holds.
        folder: where to.

    Returns:
        The files written.
    """
    drawn, written = figures(document), tables(document)
    saved = [plots.save(figure, folder / name) for name, (_, figure) in drawn.items()]
    shown = "".join(f"\n![{caption}]({name})\n" for name, (caption, _) in drawn.items())
    parts = [f"{markdown_escape(verdict(document))}\n", *map(render.to_markdown, written)]
    write_text(folder / REPORT, "\n".join(parts) + shown)
    latex = "\n".join(render.to_latex(table) for table in written)
    write_text(folder / LATEX, "% Needs \\usepackage{booktabs}\n" + latex)
    return [folder / REPORT, folder / LATEX, *saved]
