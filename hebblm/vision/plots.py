"""Plots of the image experiments: curves over tasks, pictures or epochs, and a map of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from hebblm.report.plots.drawing import NOTE, STYLE, End, Picture, label_ends, line
from hebblm.report.result.methods import PLOTTED, Look, looks
from hebblm.vision.result import KEYS
from hebblm.vision.tables import conditions, method_name, permuted_methods, summaries

TITLES = {"new": "New classes", "old": "Old classes", "overall": "All classes"}
CAPTIONS = {
    "permuted-mnist": "Mean accuracy over the tasks learnt so far",
    "sensitivity": "Top-1 accuracy by beta and eta; cells with a frame are better than MbPA",
    "incremental": "Top-1 accuracy after each epoch, by imbalance",
}
"""What the plot of an experiment shows; :data:`STREAMED` for those along a stream."""
STREAMED = "Top-1 accuracy over the pictures predicted so far"
# of networks without a memory
_COLORS = {"parametric": "#555555", "mlp": "#555555", "ewc": "#332288"}
_LINES = ("-", "--", ":", "-.")  # of permuted MNIST, by how much is stored, most first
_PANEL = 9.5  # size of the title of one of several axes
Curve = Sequence[tuple[float, Mapping[str, Any]]]
"""Places on the horizontal axis, and ``mean`` and ``std`` at each; the latter is None for a single
seed.
"""


def figures(document: Mapping[str, Any], most: int = PLOTTED) -> list[Picture]:
    """Return the plots of a result, of ``most`` lines (0 for all)."""
    experiment = document["experiment"]
    if experiment == "timing":
        return []
    with rc_context(STYLE):
        if experiment == "permuted-mnist":
            figure = _task_curves(document, most)
        elif experiment == "sensitivity":
            figure = _heat_map(document)
        else:
            figure = _class_curves(document, most)
    return [Picture(experiment, CAPTIONS.get(experiment, STREAMED), figure)]


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
    drawn = [look for look, curve in curves.items() if curve]
    rest = len(drawn) - most
    if most and rest > 0:
        by_end = sorted(drawn[1:], key=lambda look: -curves[look][-1][1]["mean"])
        kept = drawn[:1] + by_end[: most - 1]
        drawn = [look for look in drawn if look in kept]
        text = f"{rest} more: see the tables"
        axis.text(1, 1.01, text, transform=axis.transAxes, ha="right", va="bottom", **NOTE)
    ends = []
    for look in drawn:
        points = []
        low = []
        high = []
        for at, point in curves[look]:
            mean = unit * point["mean"]
            band = unit * (point["std"] or 0.0)
            points.append((at, mean))
            low.append(mean - band)
            high.append(mean + band)
        line(axis, look, points)
        if curves[look][0][1]["std"] is not None:
            across = [at for at, _ in points]
            axis.fill_between(across, low, high, color=look.color, alpha=0.15, linewidth=0)
        last = points[-1][1]
        ends.append(End(f"{look.name}  {last:.{decimals}f}", last, look.color))
    label_ends(axis, ends)


def _task_curves(document: Mapping[str, Any], most: int) -> Figure:
    """The mean accuracy over the tasks learnt so far (Fig. mnist)."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axis = figure.subplots()
    sizes = sorted(document["settings"]["stored"], reverse=True)
    curves = {}
    for name in permuted_methods(document):
        kind, _, size = name.partition("-")
        color = _COLORS.get(kind) or looks([kind])[kind].color
        style = _LINES[0]
        if size:
            style = _LINES[sizes.index(int(size)) % len(_LINES)]
        look = Look(method_name(name), color, style)
        curves[look] = list(enumerate(document["methods"][name]["curve"], 1))
    draw(axis, curves, most=most)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlim(1, max(2, document["settings"]["tasks"]))
    axis.set_xlabel("Tasks learnt so far")
    axis.set_ylabel("Mean accuracy on them")
    axis.set_title(f"Permuted MNIST, {document['scale']}")
    return figure


def _class_curves(document: Mapping[str, Any], most: int) -> Figure:
    """Accuracies on new classes and on all, a row each, a column a condition (Fig. cifar-incre)."""
    methods = document["methods"]
    columns = conditions(document)
    keys = ("new", "overall")
    figure = Figure(figsize=(1.2 + 4.6 * len(columns), 3.4 * len(keys)), layout="constrained")
    axes = figure.subplots(len(keys), len(columns), squeeze=False)
    styles = {}
    for name, color in _COLORS.items():
        if name in methods:
            styles[name] = Look(method_name(name), color)
    styles |= looks(methods.keys() - styles.keys())
    incremental = document["experiment"] == "incremental"
    for row, key in enumerate(keys):
        for axis, condition in zip(axes[row], columns, strict=True):
            curves: dict[Look, Curve] = {}
            for name, look in styles.items():
                points = methods[name]["conditions"][condition]["curve"]
                known = [point for point in points if point[key] is not None]
                curves[look] = [(point["at"], point[key]) for point in known]
            draw(axis, curves, unit=100, decimals=1, most=most)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axis.set_ylabel(f"{TITLES[key]}, Top-1 in %")
            axis.set_xlabel("After epoch" if incremental else "Pictures predicted so far")
            title = f"Imbalance {condition}" if incremental else f"{condition} old classes"
            axis.set_title(title, fontsize=_PANEL)
    return figure


def _heat_map(document: Mapping[str, Any]) -> Figure:
    """Overall, new and old accuracy by beta and eta; cells better than MbPA are framed (Fig.
    hyper).
    """
    methods = summaries(document)
    grid = document["grid"]
    betas = sorted({point["beta"] for point in grid.values()})
    etas = sorted({point["eta"] for point in grid.values()})
    by_point = {(point["beta"], point["eta"]): methods[name] for name, point in grid.items()}
    size = (1.5 + 1.0 * len(etas) * len(KEYS), 1.2 + 0.55 * len(betas))
    figure = Figure(figsize=size, layout="constrained")
    for axis, key in zip(figure.subplots(1, len(KEYS)), reversed(KEYS), strict=True):
        cells = []
        for beta in betas:
            cells.append([100 * by_point[beta, eta][key]["mean"] for eta in etas])
        bar = 100 * methods["mbpa"][key]["mean"]
        axis.imshow(cells, cmap="cividis", aspect="auto", origin="lower")
        axis.grid(visible=False)
        _write_cells(axis, cells, bar)
        axis.set_xticks(range(len(etas)), [f"{eta:g}" for eta in etas])
        axis.set_yticks(range(len(betas)), [f"{beta:g}" for beta in betas])
        axis.set_xlabel("eta")
        axis.set_ylabel("beta")
        axis.set_title(f"{TITLES[key]} (MbPA {bar:.1f})", fontsize=_PANEL)
    return figure


def _write_cells(axis: Axes, cells: list[list[float]], bar: float) -> None:
    """Write each value into its cell, and frame those above ``bar``."""
    least = min(min(row) for row in cells)
    most = max(max(row) for row in cells)
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            ink = "black" if value > (least + most) / 2 else "white"
            axis.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            if value > bar:
                frame = Rectangle(
                    (x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="#cc3311", linewidth=1.4
                )
                axis.add_patch(frame)
