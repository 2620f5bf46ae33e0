"""Labels beside the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

_LINE = 12.5  # height of a label, points


class End(NamedTuple):
    """The end of a line and what is written beside it."""

    text: str
    value: float  # where the line ends, in the units of the vertical axis
    color: str


def label_ends(axis: Axes, ends: Sequence[End]) -> None:
    """Write labels beside the ends of lines at the right border, moved apart where they collide.

    A short line leads from each end to the left edge of its label.
    """
    figure = axis.get_figure(root=True)
    assert figure is not None  # whoever draws has a figure
    figure.draw_without_rendering()
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
    """Move labels apart until neighbours are at least ``gap`` away, as little as a pooled shift allows.

    Labels that collide form a block centred on the mean of its members' wishes (pool adjacent violators), so
    that the order of the wishes is the order of the labels.

    Args:
        positions: where each label would like to stand, in any order.
        gap: least distance of two labels.

    Returns:
        The positions taken, in the order of the input.
    """
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    # Subtracting rank * gap turns "at least gap apart" into "never decreasing", which pooling solves.
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
