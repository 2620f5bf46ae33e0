"""Reports on disk and in the console: Markdown, CSV, HTML and pictures of one result or several."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from shlex import quote as quote_word
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from hebblm.io.files import write_bytes, write_text
from hebblm.report.accuracy_tables import (
    accuracy_by_part,
    accuracy_rows,
    accuracy_table,
    suggested_table,
)
from hebblm.report.inspection import INSPECTED
from hebblm.report.methods import PLOTTED
from hebblm.report.render import HTML, MARKDOWN, print_table, to_csv
from hebblm.report.result import Result
from hebblm.report.sections import fact_tables, scenario_line, time_line
from hebblm.report.stored import FILE_NAME as RESULT
from hebblm.report.summary import headline, headline_of_runs, summary_table, verdict
from hebblm.report.table import Table, present
from hebblm.report.tables import (
    comparison_table,
    frequency_table,
    gain_rows,
    gain_table,
    occurrence_table,
    occurrences_by_run,
    paired_table,
    side_by_side,
)
from hebblm.report.text_tables import document_table, forgetting_table
from hebblm.report.tokens import FILE_NAME as TOKENS
from hebblm.report.tokens import TokenLosses, check_same_run, word_table
from hebblm.runtime.spelling import unknown
from hebblm.runtime.wording import worded

PIXELS = 95  # of a page for an inch of a plot: letters are then as large in each
FORMATS = ("md", "csv", "html", "png", "svg")
DEFAULT_FORMATS = ("md", "csv", "html", "png")

CAPTIONS = {  # of the plots of a result
    "occurrences": "Loss on new words by occurrence",
    "comparison": "What each method gains over the base",
    "frequency": "Perplexity by frequency of words",
    "running": "Gain over the base so far",
    "accuracy": "How often suggestions are right, and the keystrokes that they save",
}


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    for name in formats or ("",):
        if name not in FORMATS:
            raise unknown("format", name, FORMATS, f"choose from {', '.join(FORMATS)}")
    return tuple(formats)


def write_report(
    result: Result,
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
    from hebblm.report import plots  # a run that writes no report need not wait for matplotlib

    chosen = check_formats(formats)
    if tokens is not None:
        check_same_run(result, tokens)
    tables = present(
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
    made = plots.figures(result, plotted) if {*plots.KINDS, "html"} & set(chosen) else {}
    linked = [kind for kind in plots.KINDS if kind in chosen]
    needed = {*linked, *(("png",) if "html" in chosen else ())}
    pictures, written = [], []
    for name, figure in made.items():
        drawn = {kind: plots.render(figure, kind) for kind in plots.KINDS if kind in needed}
        file, embedded = (
            f"{name}.{linked[0]}" if linked else "",
            b64encode(drawn.get("png", b"")).decode(),
        )
        pictures.append((file, CAPTIONS[name], embedded, round(PIXELS * figure.get_figwidth())))
        written += [write_bytes(directory / f"{name}.{kind}", drawn[kind]) for kind in linked]
    first = int("occurrences" in made)
    written += _write_pages(
        directory / "report",
        chosen,
        title=headline(result),
        verdicts=[verdict(result)],
        lines=[scenario_line(result)],
        inspected=_inspected(run or directory, directory),
        tables=tables,
        opening=pictures[:first],
        pictures=pictures[first:],
        facts=[*present(paired_table(result)), *fact_tables(result)],
    )
    programs = {table.name: table for table in present(gain_rows(result), accuracy_rows(result))}
    return [*written, *_write_data(tables, directory, chosen, programs)]


def write_comparison(
    results: Mapping[str, Result], directory: Path, *, formats: Sequence[str] = DEFAULT_FORMATS
) -> list[Path]:
    """Write several results side by side as ``scenarios.md``, ``.html`` and ``.csv``.

    If several have new words, their losses by occurrence follow (``occurrences-by-run.csv``).
    """
    chosen = check_formats(formats)
    tables = present(side_by_side(results, bits=True), occurrences_by_run(results))
    written = _write_pages(
        directory / tables[0].name,
        chosen,
        title=headline_of_runs(results),
        verdicts=[f"{label}: {verdict(result)}" for label, result in results.items()],
        lines=[scenario_line(result, label) for label, result in results.items()],
        tables=tables,
    )
    return [*written, *_write_data(tables, directory, chosen)]


def print_summary(result: Result, console: Console) -> None:
    """Print the verdict, the scenario in one line, the methods from the best on, and where the time
    went.
    """
    console.print(Text(f"{verdict(result)}\n", style="bold"))
    console.print(Text(scenario_line(result)))
    print_table(summary_table(result), console)
    if result.seconds is not None:
        console.print(Text(time_line(result.seconds)))


def print_comparison(results: Mapping[str, Result], console: Console) -> None:
    """Print several results side by side, each with its verdict."""
    for label, result in results.items():
        console.print(Text(f"{label}: {verdict(result)}", style="bold"))
        console.print(Text(f"{scenario_line(result, label)}\n"))
    for table in present(side_by_side(results, bits=True), occurrences_by_run(results)):
        print_table(table, console)


def _write_pages(stem: Path, formats: Sequence[str], **content: Any) -> list[Path]:
    """Write the Markdown and the HTML page among the formats; ``content`` is the text of the
    templates.

    ``verdicts`` and ``lines`` come before the tables. ``opening`` are the pictures after the
    verdicts, and ``pictures`` those after the tables, each as the file that Markdown links to, its
    caption, its form in HTML and its width there. ``facts`` are the tables after the pictures,
    folded in HTML.
    """
    return [
        write_text(
            stem.with_suffix(f".{suffix}"),
            pages.get_template(f"report.{suffix}.j2").render(**content),
        )
        for suffix, pages in (("md", MARKDOWN), ("html", HTML))
        if suffix in formats
    ]


def _inspected(run: Path, directory: Path) -> tuple[str, str]:
    """Where the page stands that shows a run token by token, as a report links to it; else how to
    make it.
    """
    page, made = run / INSPECTED, run / RESULT
    # not that of a former run
    if page.exists() and made.exists() and page.stat().st_mtime >= made.stat().st_mtime:
        return quote(Path(relpath(page, directory)).as_posix()), ""
    again = (
        ""
        if (run / TOKENS).exists()
        else worded("evaluate again with log_samples=True and log_neighbors=2000, then ")
    )
    return (
        "",
        f"To see the text, shaded by gain, {again}run hebblm-report inspect {quote_word(str(run))}",
    )


def _write_data(
    tables: Sequence[Table],
    directory: Path,
    formats: Sequence[str],
    programs: Mapping[str, Table] | None = None,
) -> list[Path]:
    """Write CSV, a file a table; ``programs`` holds by name what a program reads in a table's
    place.
    """
    if "csv" not in formats:
        return []
    plain = [(programs or {}).get(table.name, table) for table in tables]
    return [write_text(directory / f"{table.name}.csv", to_csv(table)) for table in plain]
