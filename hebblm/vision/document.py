"""The short answer, tables and plots of a result of any image experiment, printed or as files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
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
from hebblm.vision.new_classes.tables import method_name
from hebblm.vision.new_classes.tables import tables as class_tables
from hebblm.vision.permuted_mnist import document as permuted_mnist
from hebblm.vision.permuted_mnist.result import EXPERIMENT as PERMUTED_MNIST

REPORT = "report.md"
LATEX = "tables.tex"
LEVEL = 0.95


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


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean difference of two methods over the same seeds, and both ends of its 95 % interval by Student's t.

    Args:
        first: a number a seed.
        second: another method's, in the same order.

    Returns:
        Mean of first minus second, and the ends, which are infinite for a single seed.
    """
    from scipy.stats import t

    gaps = [one - other for one, other in zip(first, second, strict=True)]
    mean = statistics.fmean(gaps)
    if len(gaps) == 1:
        return mean, -math.inf, math.inf
    half = float(t.ppf((1 + LEVEL) / 2, len(gaps) - 1)) * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return mean, mean - half, mean + half


def verdict(document: Mapping[str, Any]) -> str:
    """Return one sentence a condition, of timing how many times as long each method takes."""
    if document["experiment"] == "timing":
        times = [
            f"{method_name(name)} {item['ratio']['median']:.2f}"
            for name, item in document["methods"].items()
            if name != "parametric"
        ]
        return f"Times as long as Parametric alone: {', '.join(times)}."
    sentences = {condition: _sentence(shares) for condition, shares in _shares(document).items()}
    if len(sentences) == 1:
        return next(iter(sentences.values()))
    kind = "a balance of {}" if document["experiment"] == "incremental" else "{} old classes"
    return " ".join(f"With {kind.format(condition)}: {text}" for condition, text in sentences.items())


def _shares(document: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return by condition and method the share of right answers, over all classes or tasks, of each seed."""
    shares: dict[str, dict[str, list[float]]] = {}
    permuted = document["experiment"] == PERMUTED_MNIST
    for name, item in document["methods"].items():
        for condition, part in ({"": item} if permuted else item["conditions"]).items():
            key = "average_accuracy" if permuted else "overall"
            shares.setdefault(condition, {})[name] = [seed[key] for seed in part["seeds"]]
    return shares


def _sentence(shares: Mapping[str, list[float]]) -> str:
    """Return who is best under one condition.

    Args:
        shares: of right answers, by method and seed; every seed's pictures are the same for all methods.
    """
    best, following = sorted(shares, key=lambda name: -statistics.fmean(shares[name]))[:2]
    lead, low, high = (100 * end for end in paired_interval(shares[best], shares[following]))
    count = len(shares[best])
    right = f"{100 * statistics.fmean(shares[best]):.1f} % right"
    interval = f" (95 % interval {low:.1f} to {high:.1f})" if count > 1 else ""
    ahead = f"{lead:.1f} points{interval} ahead of {_name(following)}"
    seeds = "one seed" if count == 1 else f"{count} seeds"
    if low > 0:
        return f"{_name(best)} is best: {right}, {ahead} over {seeds}."
    return f"{seeds.capitalize()} cannot tell who is best: {_name(best)}, {right}, is {ahead}."


def _name(method: str) -> str:
    """Return how a method is written in any of the experiments."""
    stem, _, point = method.partition(" ")
    network = permuted_mnist.NETWORKS.get(stem)
    return f"{method_name(stem) if network is None else network.name} {point}".rstrip()
