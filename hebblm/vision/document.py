"""Table and figure of permuted MNIST, beside what the paper says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console

from hebblm.files import write_text
from hebblm.report import plots, render
from hebblm.report.layout import spread
from hebblm.report.methods import Look, name_of
from hebblm.report.table import Cell, Column, Table

FIGURE = "permuted-mnist.png"
REPORT = "report.md"
LATEX = "tables.tex"

PAPER_ORDER = {"hebb": 1, "mbpa": 2, "ewc": 3, "mlp": 4}
"""Best first, from the text on Fig. mnist, which prints no number."""

_NAMES = {"mlp": "MLP", "ewc": "EWC"}
_COLORS = {"mlp": "#555555", "ewc": "#332288", "mbpa": "#ddaa33", "hebb": "#cc6677"}
_LINES = ("-", "--", ":", "-.")  # by how much is stored, most first


def write_report(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``report.md``, ``tables.tex`` and the curves of a result.

    Args:
        document: what ``result.json`` holds.
        folder: where to.

    Returns:
        The files written.
    """
    table = summary_table(document)
    figure = plots.save(curve_figure(document), folder / FIGURE)
    text = render.to_markdown(table) + f"\n![Mean accuracy over the tasks learnt so far]({FIGURE})\n"
    write_text(folder / REPORT, text)
    write_text(folder / LATEX, "% Needs \\usepackage{booktabs}\n" + render.to_latex(table))
    return [folder / REPORT, folder / LATEX, figure]


def print_summary(document: Mapping[str, Any], console: Console) -> None:
    """Print the table."""
    console.print(render.to_rich(summary_table(document)))


def summary_table(document: Mapping[str, Any]) -> Table:
    """Return one row a method: accuracies, forgetting and transfer, and its place here and in the paper."""
    methods = document["methods"]
    places = _places(document)
    rows = tuple(
        (
            look.name,
            item["average_accuracy"]["mean"],
            item["average_accuracy"]["std"],
            *(
                _part(item[key], part)
                for key in ("forgetting", "backward_transfer")
                for part in ("mean", "std")
            ),
            str(places[name]),
            str(PAPER_ORDER[name.partition("-")[0]]),
        )
        for name, look in _looks(document).items()
        for item in (methods[name],)
    )
    columns = (
        Column("Method"),
        Column("Average accuracy", "nll", best="max"),
        Column("±", "nll"),
        Column("Forgetting", "nll", best="min"),
        Column("±", "nll"),
        Column("Backward transfer", "signed", best="max"),
        Column("±", "nll"),
        Column("Order here"),
        Column("Order in the paper"),
    )
    settings, seeds = document["settings"], document["provenance"]["seeds"]
    notes = (
        f"{document['data']['name']}; {settings['tasks']} tasks of {settings['train_samples']:,} samples, "
        f"{settings['epochs']} epochs. Tested on {settings['test_samples']:,} samples a task after the last one, "
        f"{settings['curve_samples']:,} of them before, the same for every method; "
        + ("one seed." if len(seeds) == 1 else f"{len(seeds)} seeds, ± their standard deviation."),
        "Shares of right answers after the last task; the number behind MbPA and Hebb is the samples stored of each "
        "task. Forgetting: best accuracy so far minus the last, earlier tasks; backward transfer: the last minus "
        "that right after learning.",
        "Order: each with what stores as much, MLP and EWC with what stores most. The paper shows its result as a "
        "figure without numbers and says: EWC much better than MLP, MbPA and Hebb better than EWC, Hebb better than "
        "MbPA.",
        "Paper: Mi, Lin and Faltings, IJCAI 2021.",
    )
    return Table("permuted-mnist", f"Permuted MNIST, {document['scale']}", columns, rows, notes)


def curve_figure(document: Mapping[str, Any]) -> Figure:
    """Return the mean accuracy over the tasks learnt so far, one line a method (Fig. mnist)."""
    looks = _looks(document)
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axis = figure.subplots()
    for name, look in looks.items():
        points = document["methods"][name]["curve"]
        tasks = range(1, len(points) + 1)
        means = [point["mean"] for point in points]
        axis.plot(tasks, means, color=look.color, linestyle=look.line, linewidth=1.6)
        if points[0]["std"] is not None:
            low = [point["mean"] - point["std"] for point in points]
            high = [point["mean"] + point["std"] for point in points]
            axis.fill_between(tasks, low, high, color=look.color, alpha=0.15, linewidth=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e6e6e6", linewidth=0.7)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlim(1, max(2, document["settings"]["tasks"]))
    axis.set_xlabel("Tasks learnt so far")
    axis.set_ylabel("Mean accuracy on them")
    axis.set_title(f"Permuted MNIST, {document['scale']}", loc="left", fontweight="bold")
    _label_ends(axis, document, looks)
    return figure


def _label_ends(axis: Axes, document: Mapping[str, Any], looks: Mapping[str, Look]) -> None:
    """Write each method's name and last value beside the end of its line, moved apart where they collide."""
    low, high = axis.get_ylim()
    last = {name: document["methods"][name]["average_accuracy"]["mean"] for name in looks}
    wished = [(value - low) / (high - low) for value in last.values()]
    for (name, value), at, place in zip(last.items(), wished, spread(wished, 0.05), strict=True):
        axis.annotate(
            f"{looks[name].name}  {value:.3f}",
            xy=(1.0, at),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color="#333333",
            arrowprops={"arrowstyle": "-", "color": looks[name].color, "linewidth": 0.7},
        )


def _looks(document: Mapping[str, Any]) -> dict[str, Look]:
    """Return name, colour and line of each method: the network alone, EWC, then by what is stored."""
    sizes = sorted(document["settings"]["stored"], reverse=True)
    looks = {name: Look(_NAMES[name], _COLORS[name]) for name in _NAMES}
    for kind in ("mbpa", "hebb"):
        for size in sorted(sizes):
            line = _LINES[sizes.index(size) % len(_LINES)]
            looks[f"{kind}-{size}"] = Look(name_of(f"{kind}-{size}"), _COLORS[kind], line)
    return looks


def _places(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each method by average accuracy, among those that store as much."""
    means = {name: item["average_accuracy"]["mean"] for name, item in document["methods"].items()}
    size = max(document["settings"]["stored"])

    def rivals(name: str) -> list[float]:
        stored = name.partition("-")[2] or str(size)
        return [mean for other, mean in means.items() if other.partition("-")[2] in ("", stored)]

    return {name: 1 + sum(mean > means[name] for mean in rivals(name)) for name in means}


def _part(summary: Mapping[str, float | None] | None, part: str) -> Cell:
    """Return mean or spread of a summary that a single task leaves undefined."""
    return None if summary is None else summary[part]
