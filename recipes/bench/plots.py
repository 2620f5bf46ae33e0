"""Cost against the size of the memory, the vocabulary and the number of steps, from the
measurements' JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from hebblm.errors import UserError
from hebblm.report.plots.drawing import STYLE, short
from recipes.bench.record import BenchResult, Row, of_one_vocabulary

Curve = Mapping[float, float]
"""Milliseconds a token by size."""

_FORMS = {"naive_mbpa": "naive", "exact_mbpa": "exact", "fast_mbpa": "fast"}
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222")
_MARKERS = "osD^vP*X"


def cost_figure(results: Sequence[BenchResult]) -> Figure:
    """Return one panel a size that was varied, both axes logarithmic."""
    rows = [row for result in results for row in result.rows]
    panels = {
        "Entries of the memory": memory_curves(rows),
        "Vocabulary V": mbpa_curves(rows, "vocabulary", "steps", "S = {}"),
        "Steps S": mbpa_curves(rows, "steps", "vocabulary", "V = {:,}"),
    }
    panels = {size: curves for size, curves in panels.items() if curves}
    if not panels:
        raise UserError("nothing to draw; name files of recipes.bench adapt, retrieve or eval")
    with rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 4.0 * len(panels), 4.5), layout="constrained")
        for axis, (size, curves) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            _draw(axis, curves)
            axis.set_xlabel(size)
        figure.axes[0].set_ylabel("ms a token")
    return figure


def memory_curves(rows: Sequence[Row]) -> dict[str, Curve]:
    """Return the cost of retrieval and of a whole evaluation by the number of entries."""
    searched = _synthetic(rows, "retrieve")
    evaluated = of_one_vocabulary([row for row in rows if row.name == "evaluation"])
    curves = {
        "exact search": _curve(searched, "exact", "entries"),
        "memory's index": _curve(searched, "index", "entries"),
        "all methods": _curve(evaluated, "all", "entries"),
        "base alone": _curve(evaluated, "lstm", "entries"),
    }
    return {name: curve for name, curve in curves.items() if curve}


def mbpa_curves(rows: Sequence[Row], size: str, other: str, label: str) -> dict[str, Curve]:
    """Return the cost of MbPA by one size of the case, a curve a form and extreme of the other, as
    ``label`` has it.
    """
    adapted = _synthetic(rows, "adapt")
    values = sorted({row.case[other] for row in adapted})
    return {
        f"{form}, {label.format(value)}": _curve(
            [row for row in adapted if row.case[other] == value], timing, size
        )
        for timing, form in _FORMS.items()
        for value in values[:: max(1, len(values) - 1)]
    }


def _synthetic(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows of a name that differ in nothing but their sizes."""
    return [row for row in rows if row.name == name and row.case["source"]["kind"] == "synthetic"]


def _curve(rows: Sequence[Row], timing: str, size: str) -> Curve:
    """Return the cost of a timing by a size of the case, ascending."""
    points = {float(row.case[size]): row.milliseconds(timing) for row in rows}
    return dict(sorted(points.items()))


def _draw(axis: Axes, curves: Mapping[str, Curve]) -> None:
    for index, (label, curve) in enumerate(curves.items()):
        axis.plot(
            list(curve),
            list(curve.values()),
            color=_COLORS[index % len(_COLORS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            linewidth=1.4,
            label=label,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    sizes = sorted({size for curve in curves.values() for size in curve})
    axis.set_xticks(sizes, map(short, sizes))
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(short))
    axis.legend(fontsize=7.5, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
