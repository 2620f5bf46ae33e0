"""``hebblm-report``: tables, plots and documents from results; a page that shows a run token by
token.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from hebblm.cli.common import guarded, options, print_line
from hebblm.errors import UserError
from hebblm.report.result.methods import PLOTTED, check_plotted
from hebblm.report.result.parts import parse_edges
from hebblm.runtime.spelling import closest, unknown

if TYPE_CHECKING:  # they load matplotlib, and are imported after the command line is checked
    from hebblm.report import Result, TokenLosses

PROG = "hebblm-report"
INSPECT = "inspect"


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """Options of a report: results, formats and folder.

    Args:
        results: folders that hebblm-eval wrote, or their result.json.
        format: formats to write, separated by commas: md, csv, html, png, svg.
        output_path: folder for the files; for a single result its own folder if not given.
        edges: training counts between the ranges of the report by training count, such as
            10,100,1000; needs tokens.parquet, which hebblm-eval --log-samples writes.
        plotted: number of methods in a plot, the base and the best ones; 0 for all. The tables have
            all.
    """

    results: list[Path] = field(default_factory=list, metadata={"positional": True, "nargs": "*"})
    format: str = "md,csv,html,png"
    output_path: Path | None = None
    edges: str | None = None
    plotted: int = PLOTTED


@dataclass(frozen=True, slots=True)
class InspectConfig:
    """Options of the page about one run.

    Args:
        run: folder that hebblm-eval wrote with --log-samples, and --log-neighbors N for the
            neighbours and the parts of mixtures.
        method: method to shade first; by default the best one.
        tokens: number of tokens to show, from the beginning of the stream.
        output_path: the page; by default inspect.html in the run's folder.
    """

    run: Path = field(metadata={"positional": True})
    method: str | None = None
    tokens: int = 20_000
    output_path: Path | None = None


@options(
    f"{PROG} inspect",
    InspectConfig,
    f"{PROG} inspect results/wt2-to-ptb --method hebb --tokens 5000",
)
def _inspect(config: InspectConfig, argv: list[str]) -> None:
    """One HTML page of a run's text, each token shaded by what a method gained or lost."""
    from hebblm.report.render.inspection import write_inspection

    path = write_inspection(
        config.run, config.output_path, method=config.method, count=config.tokens
    )
    print_line(f"Wrote {path}; open it in a browser")


@options(PROG, ReportConfig, f"{PROG} results/wt2-to-ptb --format md,png --output-path reports")
def _report(config: ReportConfig, argv: list[str]) -> None:
    """Turn results into tables, plots and documents; several results are shown side by side.

    See also hebblm-report inspect RUN, which has its own --help.
    """
    if not config.results:
        raise UserError(f"no result given; name a folder that hebblm-eval wrote: {PROG} DIR")
    check_plotted(config.plotted)
    from hebblm.report import print_summary, write_comparison, write_report
    from hebblm.report.render.document import check_formats, print_comparison

    formats = check_formats([name.strip() for name in config.format.split(",")])
    paths = config.results
    if config.output_path is None and len(paths) > 1:
        raise UserError(
            f"{len(paths)} results go into one report; say where with --output-path DIR"
        )
    directory = _folder(paths[0]) if config.output_path is None else config.output_path
    edges = None if config.edges is None else parse_edges([config.edges])
    loaded = [_load(path, edges) for path in paths]
    console = Console()
    if len(loaded) == 1:
        result, losses = loaded[0]
        print_summary(result, console)
        run = _folder(paths[0])
        written = write_report(
            result, directory, formats=formats, tokens=losses, plotted=config.plotted, run=run
        )
    else:
        labels = unique_labels([result for result, _ in loaded], paths)
        results = {label: result for label, (result, _) in zip(labels, loaded, strict=True)}
        print_comparison(results, console)
        written = write_comparison(results, directory, formats=formats)
        for name, path, (result, losses) in zip(_file_names(labels), paths, loaded, strict=True):
            folder = directory / name
            run = _folder(path)
            written += write_report(
                result, folder, formats=formats, tokens=losses, plotted=config.plotted, run=run
            )
    page = next((f"; open {path} in a browser" for path in written if path.suffix == ".html"), "")
    print_line(f"Wrote {len(written)} files to {directory}{page}")


def unique_labels(results: list[Result], paths: list[Path]) -> list[str]:
    """Return a label for each result: its scenario; if several share it, also the folder, then a
    number.
    """
    scenarios = [result.scenario.label for result in results]
    named = []
    for label, path in zip(scenarios, paths, strict=True):
        if scenarios.count(label) > 1:
            named.append(f"{label} ({_folder(path).resolve().name})")
        else:
            named.append(label)
    labels = []
    for at, label in enumerate(named):
        if named.count(label) > 1:
            labels.append(f"{label} #{named[: at + 1].count(label)}")
        else:
            labels.append(label)
    return labels


def _load(path: Path, edges: tuple[int, ...] | None) -> tuple[Result, TokenLosses | None]:
    """Return a result and, if they were logged, its losses token by token."""
    from hebblm.report import Result, TokenLosses
    from hebblm.report.result import tokens

    result = Result.load(path)
    file = _folder(path) / tokens.FILE_NAME
    if not file.exists() and edges is None:
        return result, None
    losses = TokenLosses.load(file, result)
    if edges is not None:
        result = tokens.with_edges(result, losses, edges)
    return result, losses


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _file_names(labels: list[str]) -> list[str]:
    """Return labels as names of folders; if letters and digits are the same, later ones get a
    number.
    """
    names: list[str] = []
    for label in labels:
        plain = "-".join(re.findall(r"[^\W_]+", label))
        name = plain
        number = 2
        while name in names:
            name = f"{plain}-{number}"
            number += 1
        names.append(name)
    return names


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if (
        words
        and not Path(words[0]).exists()
        and closest(words[0], [INSPECT]) not in (None, words[0])
    ):
        raise unknown("subcommand", words[0], [INSPECT], "name folders that hebblm-eval wrote")
    if words[:1] == [INSPECT]:
        return _inspect(words[1:])
    return _report(words)


if __name__ == "__main__":
    sys.exit(main())
