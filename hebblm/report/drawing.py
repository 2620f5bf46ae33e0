"""How every plot looks."""

from __future__ import annotations

from typing import Any

# Any: matplotlib's stubs list every key as a literal, and the list changes from version to version.
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
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
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "svg.hashsalt": "hebblm",
}
TALLEST = 1e12  # perplexity; beyond it a method diverged, and its curve would flatten all others


def short(value: float, _position: int | None = None) -> str:
    """Return a tick label: plain below one thousand, in thousands or millions above."""
    if value >= 1e9:
        return f"{value:.0e}"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
