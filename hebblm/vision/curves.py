"""Accuracies as lines with a band of one standard deviation, each named beside its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from hebblm.report.drawing import End, label_ends
from hebblm.report.methods import PLOTTED, Look


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a method.

    Args:
        look: its name, colour and style.
        at: places on the horizontal axis.
        points: mean and standard deviation at each; the latter is None for a single seed.
    """

    look: Look
    at: Sequence[float]
    points: Sequence[tuple[float, float | None]]


def draw(axis: Axes, lines: Sequence[Line], *, decimals: int = 3, most: int = PLOTTED) -> None:
    """Draw lines, their bands, and beside each end its name and last value.

    Args:
        axis: receives them.
        lines: one a method.
        decimals: of the last values.
        most: lines that are drawn, the first one and those that end highest; a note counts the rest. 0 for all.
    """
    if most and (rest := len(lines) - most) > 0:
        ranked = sorted(range(len(lines)), key=lambda at: (at > 0, -lines[at].points[-1][0]))
        lines = [lines[at] for at in sorted(ranked[:most])]
        note = f"{rest} more: see the tables"
        axis.text(1, 1.01, note, transform=axis.transAxes, ha="right", va="bottom", fontsize=7.5, color="#666666")
    for line in lines:
        look, means = line.look, [mean for mean, _ in line.points]
        axis.plot(line.at, means, color=look.color, linestyle=look.line, linewidth=1.6)
        if line.points[0][1] is not None:
            low = [mean - (std or 0.0) for mean, std in line.points]
            high = [mean + (std or 0.0) for mean, std in line.points]
            axis.fill_between(line.at, low, high, color=look.color, alpha=0.15, linewidth=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e6e6e6", linewidth=0.7)
    ends = ((line.look, line.points[-1][0]) for line in lines)
    label_ends(axis, [End(f"{look.name}  {last:.{decimals}f}", last, look.color) for look, last in ends])
