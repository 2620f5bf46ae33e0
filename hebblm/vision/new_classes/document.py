"""Plots of a result on new classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hebblm.report.methods import PLOTTED, Look, looks
from hebblm.vision.curves import Line, draw
from hebblm.vision.new_classes.result import KEYS
from hebblm.vision.new_classes.tables import method_name, summaries

_TITLES = {"new": "New classes", "old": "Old classes", "overall": "All classes"}
_PARAMETRIC = Look(method_name("parametric"), "#555555")


def figures(document: Mapping[str, Any], most: int = PLOTTED) -> dict[str, tuple[str, Figure]]:
    """Return the plots of a result: by file name, what each shows and the figure, of ``most`` lines (0 for all)."""
    experiment = document["experiment"]
    if experiment == "timing":
        return {}
    if experiment == "sensitivity":
        caption = "Top-1 accuracy by beta and eta; cells with a frame are better than MbPA"
        return {"sensitivity.png": (caption, heat_map(document))}
    if experiment == "incremental":
        caption = "Top-1 accuracy after each epoch, by imbalance"
        return {"incremental.png": (caption, curve_figure(document, "After epoch", most))}
    caption = "Top-1 accuracy over the pictures predicted so far"
    return {f"{experiment}.png": (caption, curve_figure(document, "Pictures predicted so far", most))}


def curve_figure(document: Mapping[str, Any], along: str, most: int = PLOTTED) -> Figure:
    """Return accuracies on new classes and on all, a row each, and a column a condition (Fig. cifar-incre).

    Args:
        document: a result with curves.
        along: what the horizontal axis counts.
        most: lines in each plot, 0 for all.
    """
    methods = document["methods"]
    conditions = list(next(iter(methods.values()))["conditions"])
    shown = ("new", "overall")
    figure = Figure(figsize=(1.2 + 4.6 * len(conditions), 3.4 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), len(conditions), squeeze=False)
    styles = _looks(methods)
    for row, key in enumerate(shown):
        for column, condition in enumerate(conditions):
            axis = axes[row][column]
            lines = []
            for name, look in styles.items():
                curve = methods[name]["conditions"][condition]["curve"]
                known = [(point["at"], point[key]) for point in curve if point[key] is not None]
                parts = [(100 * part["mean"], None if part["std"] is None else 100 * part["std"]) for _, part in known]
                if parts:
                    lines.append(Line(look, [at for at, _ in known], parts))
            draw(axis, lines, decimals=1, most=most)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axis.set_ylabel(f"{_TITLES[key]}, Top-1 in %")
            axis.set_xlabel(along)
            axis.set_title(_condition(document, condition), loc="left", fontsize=9.5, fontweight="bold")
    return figure


def heat_map(document: Mapping[str, Any]) -> Figure:
    """Return overall, new and old accuracy by beta and eta; cells better than MbPA are framed (Fig. hyper)."""
    methods, grid = summaries(document), document["grid"]
    betas = sorted({point["beta"] for point in grid.values()})
    etas = sorted({point["eta"] for point in grid.values()})
    by_point = {(point["beta"], point["eta"]): methods[name] for name, point in grid.items()}
    mbpa = methods["mbpa"]
    figure = Figure(figsize=(1.5 + 1.0 * len(etas) * 3, 1.2 + 0.55 * len(betas)), layout="constrained")
    for axis, key in zip(figure.subplots(1, len(KEYS)), reversed(KEYS), strict=True):
        cells = [[100 * by_point[beta, eta][key]["mean"] for eta in etas] for beta in betas]
        axis.imshow(cells, cmap="cividis", aspect="auto", origin="lower")
        _write_cells(axis, cells, 100 * mbpa[key]["mean"])
        axis.set_xticks(range(len(etas)), [f"{eta:g}" for eta in etas])
        axis.set_yticks(range(len(betas)), [f"{beta:g}" for beta in betas])
        axis.set_xlabel("eta")
        axis.set_ylabel("beta")
        title = f"{_TITLES[key]} (MbPA {100 * mbpa[key]['mean']:.1f})"
        axis.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
    return figure


def _write_cells(axis: Axes, cells: list[list[float]], bar: float) -> None:
    """Write each value into its cell, and frame those above ``bar``."""
    flat = [value for row in cells for value in row]
    middle = (min(flat) + max(flat)) / 2
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            ink = "black" if value > middle else "white"
            axis.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            if value > bar:
                xs, ys = [x - 0.46, x + 0.46], [y - 0.46, y + 0.46]
                axis.plot(
                    [xs[0], xs[1], xs[1], xs[0], xs[0]],
                    [ys[0], ys[0], ys[1], ys[1], ys[0]],
                    color="#cc3311",
                    linewidth=1.4,
                )


def _condition(document: Mapping[str, Any], condition: str) -> str:
    """Return how a condition is written above its curves."""
    if document["experiment"] == "incremental":
        return "Balanced" if condition == "1:1" else f"Imbalance {condition}"
    return f"{condition} old classes"


def _looks(methods: Mapping[str, Any]) -> dict[str, Look]:
    """Return name, colour and line of each method."""
    first = {"parametric": _PARAMETRIC} if "parametric" in methods else {}
    return {**first, **looks(name for name in methods if name != "parametric")}
