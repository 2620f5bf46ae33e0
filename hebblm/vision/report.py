"""The report of an image experiment: its short answer, and the page that all reports share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hebblm.report.render.document import DEFAULT_FORMATS, Page, write_page
from hebblm.report.render.table import print_table
from hebblm.report.result.methods import PLOTTED
from hebblm.vision.result import paired_interval
from hebblm.vision.tables import conditions, method_name, tables

Shares = Mapping[str, Sequence[float]]
"""Shares of right answers by method, seed by seed."""


def print_summary(document: Mapping[str, Any], console: Console) -> None:
    """Print the short answer and the tables of a result."""
    console.print(Text(f"{verdict(document)}\n", style="bold"))
    for table in tables(document):
        print_table(table, console)


def write_report(
    document: Mapping[str, Any], folder: Path, *, plotted: int = PLOTTED
) -> list[Path]:
    """Write the report of a result as Markdown, HTML, CSV and PNG, and return the files.

    A plot shows ``plotted`` methods, 0 for all.
    """
    from hebblm.vision.plots import figures  # matplotlib

    page = Page(
        "report",
        f"{document['experiment']}, {document['scale']}",
        verdicts=[verdict(document)],
        tables=tables(document),
        pictures=figures(document, plotted),
    )
    return write_page(page, folder, DEFAULT_FORMATS)


def verdict(document: Mapping[str, Any]) -> str:
    """Return one sentence per condition; for timing, how many times as long each method takes.

    For sensitivity it says what Hebb reaches over the grid: its best point on test pictures is not
    a method to compare.
    """
    experiment = document["experiment"]
    methods = document["methods"]
    if experiment == "timing":
        ratios = []
        for name, item in methods.items():
            if name != "parametric":
                ratios.append(f"{method_name(name)} {item['ratio']['median']:.2f}")
        return f"Times as long as Parametric alone: {', '.join(ratios)}."
    if experiment == "permuted-mnist":
        return _best(_shares(methods, "average_accuracy"))
    kind = "a balance of {}" if experiment == "incremental" else "{} old classes"
    sentences = []
    for condition in conditions(document):
        of_condition = {name: item["conditions"][condition] for name, item in methods.items()}
        shares = _shares(of_condition, "overall")
        if experiment == "sensitivity":
            text = _range(document["grid"], shares)
        else:
            text = _best(shares)
        sentences.append(f"With {kind.format(condition)}: {text}")
    if len(sentences) == 1:
        return text
    return " ".join(sentences)


def _shares(methods: Mapping[str, Any], key: str) -> Shares:
    return {name: [seed[key] for seed in item["seeds"]] for name, item in methods.items()}


def _range(grid: Mapping[str, Any], shares: Shares) -> str:
    reached = [100 * statistics.fmean(shares[name]) for name in grid]
    mbpa = 100 * statistics.fmean(shares["mbpa"])
    over = "one seed"
    if len(shares["mbpa"]) > 1:
        over = f"means of {len(shares['mbpa'])} seeds"
    pairs = f"Hebb with {len(grid)} pairs of beta and eta"
    ends = f"{min(reached):.1f} to {max(reached):.1f} % right"
    return f"{pairs}: {ends}, MbPA: {mbpa:.1f} %, {over}."


def _best(shares: Shares) -> str:
    best, following = sorted(shares, key=lambda name: -statistics.fmean(shares[name]))[:2]
    lead, low, high = paired_interval(shares[best], shares[following])
    right = f"{100 * statistics.fmean(shares[best]):.1f} % right"
    ahead = f"{100 * lead:.1f} points"
    seeds = "one seed"
    if len(shares[best]) > 1:
        ahead += f" (95 % interval {100 * low:.1f} to {100 * high:.1f})"
        seeds = f"{len(shares[best])} seeds"
    ahead += f" ahead of {method_name(following)}"
    name = method_name(best)
    if low > 0:
        return f"{name} is best: {right}, {ahead} over {seeds}."
    return f"{seeds.capitalize()} cannot tell who is best: {name}, {right}, is {ahead}."
