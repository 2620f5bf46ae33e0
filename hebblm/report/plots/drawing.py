"""Drawing of plots: style, lines and bars by method, labels that do not overlap, image files."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from hebblm.io.files import write_bytes
from hebblm.report.result.methods import Look

Kind = Literal["png", "svg"]

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
NOTE: Any = {"fontsize": 7.5, "color": "#666666"}  # on a plot


class Picture(NamedTuple):
    """A plot of a report."""

    name: str  # of its files, without suffix
    caption: str
    figure: Figure


def render(figure: Figure, kind: Kind) -> bytes:
    """Return a figure as the bytes of an image file, the same bytes for the same figure.

    PNG has a palette of 256 colours, which look like millions in a plot and take a third of the
    bytes.
    """
    stream = io.BytesIO()
    FigureCanvasAgg(figure)
    with rc_context(STYLE):
        if kind == "svg":
            figure.savefig(stream, format="svg", dpi=160, metadata={"Date": None})
            return stream.getvalue()
        figure.savefig(stream, format="png", dpi=160, pil_kwargs={"compress_level": 0})
    few = io.BytesIO()
    with Image.open(stream) as picture:
        indexed = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    indexed.save(few, "PNG", optimize=True)
    return few.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure atomically as ``.png`` or ``.svg`` by the suffix of ``path``."""
    kind: Kind = "png"
    if path.suffix == ".svg":
        kind = "svg"
    return write_bytes(path, render(figure, kind))


def line(
    axis: Axes, look: Look, points: Sequence[tuple[float, float]], marker: str | None = None
) -> None:
    """Draw a method's line through points (place, value)."""
    axis.plot(
        [place for place, _ in points],
        [value for _, value in points],
        color=look.color,
        linestyle=look.line,
        linewidth=1.6,
        marker=marker,
        markersize=3.5,
        label=look.name,
    )


def note(figure: Figure, text: str) -> None:
    """Write a note into an empty corner: the lower right one, or the upper one next to a title of
    all axes.
    """
    height, side = 0.012, "bottom"
    if figure.get_suptitle():
        height, side = 0.985, "top"
    with rc_context(STYLE):
        figure.text(0.995, height, text, ha="right", va=side, **NOTE)


def by_bucket(figure: Figure, buckets: Sequence[tuple[str, int]], label: str, unit: str) -> None:
    """Label the horizontal axis with buckets and their sizes, and put the methods' names next to
    it.
    """
    labels = [f"{name}\n{size:,} {unit}s" for name, size in buckets]
    figure.axes[-1].set_xticks(range(len(buckets)), labels)
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
        places = []
        heights = []
        for at, height in enumerate(values.get(method, ())):
            if height is None:
                continue
            if abs(height) <= TALLEST:
                places.append(at + shift)
                heights.append(height)
                continue
            axis.text(
                at + shift,
                0.02,
                _beyond(height),
                color=look.color,
                ha="center",
                transform=axis.get_xaxis_transform(),
            )
        axis.bar(
            places,
            heights,
            width * 0.9,
            color=look.color,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0,
            label=look.name,
        )


def _beyond(height: float) -> str:
    """Return the sign of a value beyond the axis."""
    if math.isinf(height):
        return "\u221e" if height > 0 else "\u2212\u221e"
    return "\u2191" if height > 0 else "\u2193"


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
        mean = positions[index] - rank * gap
        size = 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean = (before * count + mean * size) / (count + size)
            size += count
        blocks.append((mean, size))
    pooled: list[float] = []
    for mean, size in blocks:
        pooled += [mean] * size
    result = [0.0] * len(positions)
    for rank, index in enumerate(order):
        result[index] = pooled[rank] + rank * gap
    return result
