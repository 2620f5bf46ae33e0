"""Drawing of plots: their style, bars by method, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hebblm.report.methods import Look

# Any: matplotlib's stubs list every key as a literal, and the list changes from version to version.
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.parse_math": False,  # what stands between dollars is a name
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.7,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "svg.hashsalt": "hebblm",
}
TALLEST = 1e12  # perplexity; beyond it a method diverged, and its curve would flatten all others
_LINE = 12.5  # height of a label, points


def by_bucket(figure: Figure, buckets: Sequence[tuple[str, int]], label: str, unit: str) -> None:
    """Label the horizontal axis with buckets and their sizes, and put the methods' names next to
    it.
    """
    figure.axes[-1].set_xticks(
        range(len(buckets)), [f"{name}\n{size:,} {unit}s" for name, size in buckets]
    )
    figure.axes[-1].set_xlabel(label)
    for axis in figure.axes:
        axis.grid(visible=False, axis="x")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")


def grouped_bars(
    axis: Axes, values: Mapping[str, list[float | None]], styles: Mapping[str, Look]
) -> None:
    """Draw one bar a method and group, each method at its own place; a value beyond the axis is a
    sign.
    """
    width = 0.84 / len(styles)
    for index, (method, look) in enumerate(styles.items()):
        shift = (index - (len(styles) - 1) / 2) * width
        heights = [
            (at + shift, height)
            for at, height in enumerate(values.get(method, ()))
            if height is not None
        ]
        finite = [(at, height) for at, height in heights if abs(height) <= TALLEST]
        axis.bar(
            [at for at, _ in finite],
            [height for _, height in finite],
            width * 0.9,
            color=look.color,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0,
            label=look.name,
        )
        for at, height in ((at, height) for at, height in heights if abs(height) > TALLEST):
            up, down = ("\u221e", "\u2212\u221e") if math.isinf(height) else ("\u2191", "\u2193")
            sign = up if height > 0 else down
            axis.text(
                at, 0.02, sign, color=look.color, ha="center", transform=axis.get_xaxis_transform()
            )


def short(value: float, _position: int | None = None) -> str:
    """Return a tick label: plain below one thousand, in thousands or millions above."""
    if value >= 1e9:
        return f"{value:.0e}"
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e3 else f"{value:g}"


class End(NamedTuple):
    """The end of a line and its label."""

    text: str
    value: float  # where the line ends, in the units of the vertical axis
    color: str


def label_ends(axis: Axes, ends: Sequence[End]) -> None:
    """Write labels next to the ends of lines at the right border, moved apart if they collide.

    A short line leads from each end to the left edge of its label.
    """
    figure = axis.get_figure(root=True)
    assert figure is not None  # whoever draws has a figure
    engine = figure.get_layout_engine()
    assert engine is not None  # nor are labels placed where none lays the axes out
    engine.execute(figure)
    gap = _LINE / 72 * figure.dpi / axis.get_window_extent().height
    transform = axis.transData + axis.transAxes.inverted()
    heights = (float(transform.transform((axis.get_xlim()[1], end.value))[1]) for end in ends)
    wished = [min(max(height, 0.0), 1.0) for height in heights]
    for end, at, place in zip(ends, wished, spread(wished, gap), strict=True):
        axis.annotate(
            end.text,
            xy=(1.0, at),
            xycoords="axes fraction",
            xytext=(1.035, place),
            textcoords="axes fraction",
            va="center",
            ha="left",
            fontsize=8.5,
            color="#333333",
            arrowprops={
                "arrowstyle": "-",
                "color": end.color,
                "linewidth": 0.7,
                "relpos": (0.0, 0.5),
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move labels apart until neighbours are at least ``gap`` away, as little as a pooled shift
    allows.

    Labels that collide form a block centred on the mean of its members' wishes (pool adjacent
    violators), so that the order of the wishes is the order of the labels.
    """
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    # Subtracting rank * gap turns "at least gap apart" into "never decreasing", which pooling
    # solves.
    blocks: list[tuple[float, int]] = []  # (mean, size)
    for rank, index in enumerate(order):
        mean, size = positions[index] - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    pooled = [mean for mean, size in blocks for _ in range(size)]
    result = [0.0] * len(positions)
    for rank, index in enumerate(order):
        result[index] = pooled[rank] + rank * gap
    return result
