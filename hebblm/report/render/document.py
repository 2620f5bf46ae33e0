"""Reports on disk and in the console: a page of tables and pictures in several formats."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from shlex import quote as quote_word
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from hebblm.io.files import write_bytes, write_text
from hebblm.report.render.inspection import INSPECTED
from hebblm.report.render.table import HTML, MARKDOWN, print_table, to_csv
from hebblm.report.render.verdict import verdict
from hebblm.report.result.methods import PLOTTED
from hebblm.report.result.schema import FILE_NAME as RESULT
from hebblm.report.result.schema import StoredResult
from hebblm.report.result.tokens import FILE_NAME as TOKENS
from hebblm.report.result.tokens import TokenLosses, check_same_run
from hebblm.report.tables.by_part import (
    frequency_table,
    gain_rows,
    gain_table,
    occurrence_table,
    occurrences_by_run,
    paired_table,
)
from hebblm.report.tables.facts import fact_tables, scenario_line, time_line
from hebblm.report.tables.overall import comparison_table, runs_table, summary_table
from hebblm.report.tables.suggestions import (
    accuracy_by_part,
    accuracy_rows,
    accuracy_table,
    suggested_table,
)
from hebblm.report.tables.table import Table, present
from hebblm.report.tables.texts import document_table, forgetting_table, word_table
from hebblm.runtime.spelling import unknown
from hebblm.runtime.wording import worded

if TYPE_CHECKING:  # a run that writes no report need not wait for matplotlib
    from hebblm.report.plots.drawing import Picture

PIXELS = 95  # of a page for an inch of a plot: letters are then as large in each
FORMATS = ("md", "csv", "html", "png", "svg")
DEFAULT_FORMATS = ("md", "csv", "html", "png")


class Link(NamedTuple):
    """Where the page stands that shows a run token by token; without it, how to make it."""

    target: str
    remedy: str


class PlacedPicture(NamedTuple):
    """A picture as the templates place it."""

    file: str  # that Markdown links to; nothing without one
    caption: str
    png: str  # in base64
    width: int  # pixels in HTML


@dataclass(frozen=True, slots=True)
class Page:
    """Content of a report, in the order of its fields."""

    name: str  # of its files, without suffix
    title: str
    verdicts: Sequence[str]  # the short answer, one a paragraph
    opening: Sequence[Picture] = ()  # after the short answer
    lines: Sequence[str] = ()  # what was evaluated
    inspected: Link | None = None
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    facts: Sequence[Table] = ()  # folded in HTML
    # what a program reads in the place of tables of the same name, as CSV
    data: Sequence[Table] = ()


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    for name in formats or ("",):
        if name not in FORMATS:
            raise unknown("format", name, FORMATS, f"choose from {', '.join(FORMATS)}")
    return tuple(formats)


def write_page(page: Page, directory: Path, formats: Sequence[str]) -> list[Path]:
    """Write a page as Markdown and HTML, its tables as CSV, its pictures as PNG and SVG, those
    among the formats; return the files.

    HTML has its pictures inside; Markdown links to their files.
    """
    written: list[Path] = []
    content: dict[str, Any] = {"page": page}
    for part, pictures in (("opening", page.opening), ("pictures", page.pictures)):
        content[part] = []
        for picture in pictures:
            shown, files = _write_picture(picture, directory, formats)
            content[part].append(shown)
            written += files
    for suffix, pages in (("md", MARKDOWN), ("html", HTML)):
        if suffix in formats:
            text = pages.get_template(f"report.{suffix}.j2").render(content)
            written.append(write_text(directory / f"{page.name}.{suffix}", text))
    if "csv" in formats:
        data = {table.name: table for table in page.data}
        for table in page.tables:
            text = to_csv(data.get(table.name, table))
            written.append(write_text(directory / f"{table.name}.csv", text))
    return written


def write_report(
    result: StoredResult,
    directory: Path,
    *,
    formats: Sequence[str] = DEFAULT_FORMATS,
    tokens: TokenLosses | None = None,
    plotted: int = PLOTTED,
    run: Path | None = None,
) -> list[Path]:
    """Write the report of one result, each file atomically, and return the files.

    Formats are any of ``md`` (``report.md``), ``csv`` (a file a table), ``html`` (``report.html``,
    with its pictures inside), ``png`` and ``svg`` (a file a plot). With the losses token by token
    the words that changed most are shown. A plot shows so many methods; 0 for all. ``run`` is the
    folder of the result, where that is another one.
    """
    chosen = check_formats(formats)
    if tokens is not None:
        check_same_run(result, tokens)
    opening: list[Picture] = []
    pictures: list[Picture] = []
    if {"html", "png", "svg"}.intersection(chosen):
        from hebblm.report.plots.figures import NEW_WORDS, figures

        for picture in figures(result, plotted):
            if picture.name == NEW_WORDS:
                opening.append(picture)
            else:
                pictures.append(picture)
    page = Page(
        "report",
        result.scenario.label,
        verdicts=[verdict(result)],
        opening=opening,
        lines=[scenario_line(result)],
        inspected=_inspected(run or directory, directory),
        tables=tables_of(result, tokens),
        pictures=pictures,
        facts=present(paired_table(result)) + fact_tables(result),
        data=present(gain_rows(result), accuracy_rows(result)),
    )
    return write_page(page, directory, chosen)


def write_comparison(
    results: Mapping[str, StoredResult],
    directory: Path,
    *,
    formats: Sequence[str] = DEFAULT_FORMATS,
) -> list[Path]:
    """Write several results side by side as ``scenarios.md``, ``.html`` and ``.csv``.

    If several have new words, their losses by occurrence follow (``occurrences-by-run.csv``).
    """
    page = Page(
        "scenarios",
        "Runs side by side",
        verdicts=[f"{label}: {verdict(result)}" for label, result in results.items()],
        lines=[scenario_line(result, label) for label, result in results.items()],
        tables=present(runs_table(results, bits=True), occurrences_by_run(results)),
    )
    return write_page(page, directory, check_formats(formats))


def tables_of(result: StoredResult, tokens: TokenLosses | None = None) -> list[Table]:
    """Return the tables of a report, those that a result has data for."""
    return present(
        comparison_table(result),
        frequency_table(result),
        gain_table(result),
        occurrence_table(result),
        accuracy_table(result),
        accuracy_by_part(result, "top5"),
        accuracy_by_part(result, "saved"),
        document_table(result),
        forgetting_table(result),
        None if tokens is None else word_table(result, tokens),
        suggested_table(result),
    )


def print_summary(result: StoredResult, console: Console) -> None:
    """Print the verdict, the scenario in one line, the methods from the best on, and where the time
    went.
    """
    console.print(Text(f"{verdict(result)}\n", style="bold"))
    console.print(Text(scenario_line(result)))
    print_table(summary_table(result), console)
    if result.seconds is not None:
        console.print(Text(time_line(result.seconds)))


def print_comparison(results: Mapping[str, StoredResult], console: Console) -> None:
    """Print several results side by side, each with its verdict."""
    for label, result in results.items():
        console.print(Text(f"{label}: {verdict(result)}", style="bold"))
        console.print(Text(f"{scenario_line(result, label)}\n"))
    for table in present(runs_table(results, bits=True), occurrences_by_run(results)):
        print_table(table, console)


def _write_picture(
    picture: Picture, directory: Path, formats: Sequence[str]
) -> tuple[PlacedPicture, list[Path]]:
    """Write a picture in those of the formats that are pictures; return it for a page, and the
    files.
    """
    from hebblm.report.plots import drawing

    file = ""
    written = []
    png = b""
    if "png" in formats or "html" in formats:
        png = drawing.render(picture.figure, "png")
    if "svg" in formats:
        file = f"{picture.name}.svg"
        written.append(write_bytes(directory / file, drawing.render(picture.figure, "svg")))
    if "png" in formats:  # the one that Markdown links to, if there are both
        file = f"{picture.name}.png"
        written.insert(0, write_bytes(directory / file, png))
    width = round(PIXELS * picture.figure.get_figwidth())
    return PlacedPicture(file, picture.caption, b64encode(png).decode(), width), written


def _inspected(run: Path, directory: Path) -> Link:
    """Return where the page stands that shows a run token by token, as a report links to it; else
    how to make it.
    """
    page = run / INSPECTED
    result = run / RESULT
    # not that of a former run
    if page.exists() and result.exists() and page.stat().st_mtime >= result.stat().st_mtime:
        return Link(quote(Path(relpath(page, directory)).as_posix()), "")
    again = ""
    if not (run / TOKENS).exists():
        again = worded("evaluate again with log_samples=True and log_neighbors=2000, then ")
    command = f"run hebblm-report inspect {quote_word(str(run))}"
    return Link("", f"To see the text, shaded by gain, {again}{command}")
