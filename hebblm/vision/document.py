"""The short answer, tables and plots of a result of any image experiment, printed or as files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hebblm.files import write_text
from hebblm.report import plots, render
from hebblm.report.console import print_table
from hebblm.report.methods import PLOTTED
from hebblm.report.templating import markdown_escape
from hebblm.vision.figures import figures
from hebblm.vision.tables import method_name, tables

REPORT = "report.md"
LEVEL = 0.95


def print_summary(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdict and the tables."""
    console.print(Text(f"{verdict(document)}\n", style="bold"))
    for table in tables(document):
        print_table(table, console)


def write_report(document: Mapping[str, Any], folder: Path, *, plotted: int = PLOTTED) -> list[Path]:
    """Write ``report.md``, which begins with the verdict, and the plots.

    Args:
        document: what ``result.json`` holds.
        folder: where to.
        plotted: methods that a plot shows; 0 for all.

    Returns:
        The files written.
    """
    drawn, written = figures(document, most=plotted), tables(document)
    saved = [plots.save(figure, folder / name) for name, (_, figure) in drawn.items()]
    shown = "".join(f"\n![{caption}]({name})\n" for name, (caption, _) in drawn.items())
    parts = [f"{markdown_escape(verdict(document))}\n", *map(render.to_markdown, written)]
    write_text(folder / REPORT, "\n".join(parts) + shown)
    return [folder / REPORT, *saved]


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
    """Return one sentence a condition, of timing how many times as long each method takes.

    Of sensitivity it says what Hebb reaches over the grid: the best of it on test pictures is no method to compare.
    """
    experiment, methods = document["experiment"], document["methods"]
    if experiment == "timing":
        times = [
            f"{method_name(name)} {item['ratio']['median']:.2f}"
            for name, item in methods.items()
            if name != "parametric"
        ]
        return f"Times as long as Parametric alone: {', '.join(times)}."
    if experiment == "permuted-mnist":
        return _sentence(_shares(methods, "average_accuracy"))
    conditions = list(next(iter(methods.values()))["conditions"])
    tell = partial(_range, document["grid"]) if experiment == "sensitivity" else _sentence
    sentences = [
        tell(_shares({name: item["conditions"][condition] for name, item in methods.items()}, "overall"))
        for condition in conditions
    ]
    if len(sentences) == 1:
        return sentences[0]
    kind = "a balance of {}" if experiment == "incremental" else "{} old classes"
    pairs = zip(conditions, sentences, strict=True)
    return " ".join(f"With {kind.format(condition)}: {text}" for condition, text in pairs)


def _shares(methods: Mapping[str, Any], key: str) -> dict[str, list[float]]:
    """Return by method the share of right answers, over all classes or tasks, of each seed."""
    return {name: [seed[key] for seed in item["seeds"]] for name, item in methods.items()}


def _range(grid: Collection[str], shares: Mapping[str, list[float]]) -> str:
    """Return what Hebb reaches over a grid, beside MbPA; ``shares`` as :func:`_sentence` has them."""
    right = {name: 100 * statistics.fmean(each) for name, each in shares.items()}
    reached = [right[name] for name in grid]
    over = "one seed" if len(shares["mbpa"]) == 1 else f"means of {len(shares['mbpa'])} seeds"
    return (
        f"Hebb with {len(grid)} pairs of beta and eta: {min(reached):.1f} to {max(reached):.1f} % right, "
        f"MbPA: {right['mbpa']:.1f} %, {over}."
    )


def _sentence(shares: Mapping[str, list[float]]) -> str:
    """Return who is best under one condition, by the shares of right answers by method and seed.

    Every seed's pictures are the same for all methods.
    """
    best, following = sorted(shares, key=lambda name: -statistics.fmean(shares[name]))[:2]
    lead, low, high = (100 * end for end in paired_interval(shares[best], shares[following]))
    count = len(shares[best])
    right = f"{100 * statistics.fmean(shares[best]):.1f} % right"
    interval = f" (95 % interval {low:.1f} to {high:.1f})" if count > 1 else ""
    ahead = f"{lead:.1f} points{interval} ahead of {method_name(following)}"
    seeds = "one seed" if count == 1 else f"{count} seeds"
    if low > 0:
        return f"{method_name(best)} is best: {right}, {ahead} over {seeds}."
    return f"{seeds.capitalize()} cannot tell who is best: {method_name(best)}, {right}, is {ahead}."
