"""Accuracies as lines with a band of one standard deviation, each named beside its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from hebblm.report.layout import spread
from hebblm.report.methods import Look

GAP = 0.05  # least distance of two labels, in heights of the axis


@dataclass(frozen=True, slots=True)
class Line:
    """One method's line.

    Args:
        look: its name, colour and style.
        at: places on the horizontal axis.
        points: mean and standard deviation at each; the latter is None for a single seed.
    """

    look: Look
    at: Sequence[float]
    points: Sequence[tuple[float, float | None]]


def draw(axis: Axes, lines: Sequence[Line], *, decimals: int = 3) -> None:
    """Draw lines, their bands, and beside each end its name and last value.

    Args:
        axis: receives them.
        lines: one a method.
        decimals: of the last values.
    """
    for line in lines:
        look, means = line.look, [mean for mean, _ in line.points]
        axis.plot(line.at, means, color=look.color, linestyle=look.line, linewidth=1.6)
        if line.points[0][1] is not None:
            low = [mean - (std or 0.0) for mean, std in line.points]
            high = [mean + (std or 0.0) for mean, std in line.points]
            axis.fill_between(line.at, low, high, color=look.color, alpha=0.15, linewidth=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e6e6e6", linewidth=0.7)
    _label_ends(axis, lines, decimals)


def _label_ends(axis: Axes, lines: Sequence[Line], decimals: int) -> None:
    """Write each name and last value beside the end of its line, moved apart where they collide."""
    low, high = axis.get_ylim()
    last = [line.points[-1][0] for line in lines]
    wished = [(value - low) / (high - low) for value in last]
    for line, value, at, place in zip(lines, last, wished, spread(wished, GAP), strict=True):
        axis.annotate(
            f"{line.look.name}  {value:.{decimals}f}",
            xy=(1.0, at),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color="#333333",
            arrowprops={"arrowstyle": "-", "color": line.look.color, "linewidth": 0.7},
        )
