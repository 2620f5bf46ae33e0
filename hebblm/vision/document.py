"""The short answer, tables and plots of a result of any image experiment, printed or as files."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.text import Text

from hebblm.io.files import write_text
from hebblm.report import plots, render
from hebblm.report.drawing import STYLE, End, label_ends
from hebblm.report.methods import PLOTTED, Look, looks
from hebblm.report.render import markdown_escape, print_table
from hebblm.vision.result import KEYS, paired_interval
from hebblm.vision.tables import method_name, permuted_methods, summaries, tables

REPORT = "report.md"
_TITLES = {"new": "New classes", "old": "Old classes", "overall": "All classes"}
# of networks without a memory
_COLORS = {"parametric": "#555555", "mlp": "#555555", "ewc": "#332288"}
_LINES = ("-", "--", ":", "-.")  # of permuted MNIST, by how much is stored, most first
_PANEL = 9.5  # size of the title of one of several axes
Curve = Sequence[tuple[float, Mapping[str, Any]]]
"""Places on the horizontal axis, and ``mean`` and ``std`` at each; the latter is None for a single
seed.
"""


def print_summary(document: Mapping[str, Any], console: Console) -> None:
    console.print(Text(f"{verdict(document)}\n", style="bold"))
    for table in tables(document):
        print_table(table, console)


def write_report(
    document: Mapping[str, Any], folder: Path, *, plotted: int = PLOTTED
) -> list[Path]:
    """Write ``report.md``, which begins with the verdict, and the plots.

    A plot shows ``plotted`` methods, 0 for all.
    """
    drawn, written = figures(document, most=plotted), tables(document)
    saved = [plots.save(figure, folder / name) for name, (_, figure) in drawn.items()]
    shown = "".join(f"\n![{caption}]({name})\n" for name, (caption, _) in drawn.items())
    parts = [f"{markdown_escape(verdict(document))}\n", *map(render.to_markdown, written)]
    write_text(folder / REPORT, "\n".join(parts) + shown)
    return [folder / REPORT, *saved]


def verdict(document: Mapping[str, Any]) -> str:
    """Return one sentence per condition; for timing, how many times as long each method takes.

    For sensitivity it says what Hebb reaches over the grid: its best point on test pictures is not
    a method to compare.
    """
    experiment, methods = document["experiment"], document["methods"]
    if experiment == "timing":
        ratios = {
            method_name(name): item["ratio"]["median"]
            for name, item in methods.items()
            if name != "parametric"
        }
        return (
            "Times as long as Parametric alone: "
            f"{', '.join(f'{name} {r:.2f}' for name, r in ratios.items())}."
        )
    if experiment == "permuted-mnist":
        return _best(_shares(methods, "average_accuracy"))
    sentences = {}
    for condition in _conditions(document):
        shares = _shares(
            {name: item["conditions"][condition] for name, item in methods.items()}, "overall"
        )
        sentences[condition] = (
            _range(document["grid"], shares) if experiment == "sensitivity" else _best(shares)
        )
    if len(sentences) == 1:
        return next(iter(sentences.values()))
    kind = "a balance of {}" if experiment == "incremental" else "{} old classes"
    return " ".join(
        f"With {kind.format(condition)}: {text}" for condition, text in sentences.items()
    )


def _conditions(document: Mapping[str, Any]) -> list[str]:
    return list(next(iter(document["methods"].values()))["conditions"])


def _shares(methods: Mapping[str, Any], key: str) -> dict[str, list[float]]:
    return {name: [seed[key] for seed in item["seeds"]] for name, item in methods.items()}


def _range(grid: Mapping[str, Any], shares: Mapping[str, list[float]]) -> str:
    right = {name: 100 * statistics.fmean(each) for name, each in shares.items()}
    reached = [right[name] for name in grid]
    over = "one seed" if len(shares["mbpa"]) == 1 else f"means of {len(shares['mbpa'])} seeds"
    return (
        f"Hebb with {len(grid)} pairs of beta and eta: {min(reached):.1f} to {max(reached):.1f} % "
        "right, "
        f"MbPA: {right['mbpa']:.1f} %, {over}."
    )


def _best(shares: Mapping[str, list[float]]) -> str:
    best, following = sorted(shares, key=lambda name: -statistics.fmean(shares[name]))[:2]
    lead, low, high = (100 * end for end in paired_interval(shares[best], shares[following]))
    count = len(shares[best])
    right = f"{100 * statistics.fmean(shares[best]):.1f} % right"
    interval = f" (95 % interval {low:.1f} to {high:.1f})" if count > 1 else ""
    ahead = f"{lead:.1f} points{interval} ahead of {method_name(following)}"
    seeds = "one seed" if count == 1 else f"{count} seeds"
    if low > 0:
        return f"{method_name(best)} is best: {right}, {ahead} over {seeds}."
    return (
        f"{seeds.capitalize()} cannot tell who is best: {method_name(best)}, {right}, is {ahead}."
    )


def figures(document: Mapping[str, Any], *, most: int = PLOTTED) -> dict[str, tuple[str, Figure]]:
    """The plots of a result: by file name, what each shows and the figure, of ``most`` lines (0 for
    all).
    """
    experiment = document["experiment"]
    if experiment == "timing":
        return {}
    with rc_context(STYLE):
        match experiment:
            case "permuted-mnist":
                shown = "Mean accuracy over the tasks learnt so far", _task_curves(document, most)
            case "sensitivity":
                shown = (
                    "Top-1 accuracy by beta and eta; cells with a frame are better than MbPA",
                    _heat_map(document),
                )
            case "incremental":
                figure = _class_curves(document, "After epoch", most)
                shown = "Top-1 accuracy after each epoch, by imbalance", figure
            case _:
                figure = _class_curves(document, "Pictures predicted so far", most)
                shown = "Top-1 accuracy over the pictures predicted so far", figure
    return {f"{experiment}.png": shown}


def _task_curves(document: Mapping[str, Any], most: int) -> Figure:
    """The mean accuracy over the tasks learnt so far (Fig. mnist)."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axis = figure.subplots()
    sizes = sorted(document["settings"]["stored"], reverse=True)
    curves = {}
    for name in permuted_methods(document):
        kind, _, size = name.partition("-")
        color = _COLORS.get(kind) or looks([kind])[kind].color
        line = _LINES[sizes.index(int(size)) % len(_LINES)] if size else _LINES[0]
        curves[Look(method_name(name), color, line)] = list(
            enumerate(document["methods"][name]["curve"], 1)
        )
    draw(axis, curves, most=most)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlim(1, max(2, document["settings"]["tasks"]))
    axis.set_xlabel("Tasks learnt so far")
    axis.set_ylabel("Mean accuracy on them")
    axis.set_title(f"Permuted MNIST, {document['scale']}")
    return figure


def _class_curves(document: Mapping[str, Any], along: str, most: int) -> Figure:
    """Accuracies on new classes and on all, a row each, a column a condition (Fig. cifar-incre)."""
    methods, conditions, shown = document["methods"], _conditions(document), ("new", "overall")
    figure = Figure(figsize=(1.2 + 4.6 * len(conditions), 3.4 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), len(conditions), squeeze=False)
    styles = {
        name: Look(method_name(name), color) for name, color in _COLORS.items() if name in methods
    }
    styles |= looks(methods.keys() - styles.keys())
    for row, key in enumerate(shown):
        for axis, condition in zip(axes[row], conditions, strict=True):
            curves = {}
            for name, look in styles.items():
                points = methods[name]["conditions"][condition]["curve"]
                curves[look] = [
                    (point["at"], point[key]) for point in points if point[key] is not None
                ]
            draw(axis, curves, unit=100, decimals=1, most=most)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axis.set_ylabel(f"{_TITLES[key]}, Top-1 in %")
            axis.set_xlabel(along)
            title = f"{condition} old classes"
            if document["experiment"] == "incremental":
                title = "Balanced" if condition == "1:1" else f"Imbalance {condition}"
            axis.set_title(title, fontsize=_PANEL)
    return figure


def draw(
    axis: Axes,
    curves: Mapping[Look, Curve],
    *,
    unit: float = 1,
    decimals: int = 3,
    most: int = PLOTTED,
) -> None:
    """Draw lines in this unit, their bands of one standard deviation, and at each end its name and
    last value.

    Of more than ``most`` lines (0 for all) the first one and those that end highest are drawn; a
    note counts the rest.
    """
    shown = [look for look, curve in curves.items() if curve]
    if most and (rest := len(shown) - most) > 0:
        ranked = sorted(shown, key=lambda look: (look != shown[0], -curves[look][-1][1]["mean"]))[
            :most
        ]
        shown = [look for look in shown if look in ranked]
        note = f"{rest} more: see the tables"
        axis.text(
            1,
            1.01,
            note,
            transform=axis.transAxes,
            ha="right",
            va="bottom",
            fontsize=7.5,
            color="#666666",
        )
    ends = []
    for look in shown:
        places = [place for place, _ in curves[look]]
        means = [unit * point["mean"] for _, point in curves[look]]
        bands = [unit * (point["std"] or 0.0) for _, point in curves[look]]
        axis.plot(places, means, color=look.color, linestyle=look.line, linewidth=1.6)
        if curves[look][0][1]["std"] is not None:
            low, high = (
                [mean + sign * band for mean, band in zip(means, bands, strict=True)]
                for sign in (-1, 1)
            )
            axis.fill_between(places, low, high, color=look.color, alpha=0.15, linewidth=0)
        ends.append(End(f"{look.name}  {means[-1]:.{decimals}f}", means[-1], look.color))
    label_ends(axis, ends)


def _heat_map(document: Mapping[str, Any]) -> Figure:
    """Overall, new and old accuracy by beta and eta; cells better than MbPA are framed (Fig.
    hyper).
    """
    methods, grid = summaries(document), document["grid"]
    betas, etas = (sorted({point[name] for point in grid.values()}) for name in ("beta", "eta"))
    by_point = {(point["beta"], point["eta"]): methods[name] for name, point in grid.items()}
    figure = Figure(
        figsize=(1.5 + 1.0 * len(etas) * 3, 1.2 + 0.55 * len(betas)), layout="constrained"
    )
    for axis, key in zip(figure.subplots(1, len(KEYS)), reversed(KEYS), strict=True):
        cells = [[100 * by_point[beta, eta][key]["mean"] for eta in etas] for beta in betas]
        bar = 100 * methods["mbpa"][key]["mean"]
        axis.imshow(cells, cmap="cividis", aspect="auto", origin="lower")
        axis.grid(visible=False)
        _write_cells(axis, cells, bar)
        axis.set_xticks(range(len(etas)), [f"{eta:g}" for eta in etas])
        axis.set_yticks(range(len(betas)), [f"{beta:g}" for beta in betas])
        axis.set_xlabel("eta")
        axis.set_ylabel("beta")
        axis.set_title(f"{_TITLES[key]} (MbPA {bar:.1f})", fontsize=_PANEL)
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
                frame = Rectangle(
                    (x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="#cc3311", linewidth=1.4
                )
                axis.add_patch(frame)
