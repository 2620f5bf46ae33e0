"""Tables and plots of a result as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from hebblm.files import write_text
from hebblm.report import plots, render
from hebblm.report.table import Table

REPORT = "report.md"
LATEX = "tables.tex"


def write_documents(
    tables: Sequence[Table], figures: Mapping[str, tuple[str, Figure]], folder: Path
) -> list[Path]:
    """Write ``report.md``, ``tables.tex`` and the plots.

    Args:
        tables: in their order.
        figures: by file name, what it shows and the figure.
        folder: where to.

    Returns:
        The files written.
    """
    saved = [plots.save(figure, folder / name) for name, (_, figure) in figures.items()]
    shown = "".join(f"\n![{caption}]({name})\n" for name, (caption, _) in figures.items())
    write_text(folder / REPORT, "\n".join(render.to_markdown(table) for table in tables) + shown)
    latex = "\n".join(render.to_latex(table) for table in tables)
    write_text(folder / LATEX, "% Needs \\usepackage{booktabs}\n" + latex)
    return [folder / REPORT, folder / LATEX, *saved]
