"""Pictures without what is drawn on them, for tests that ask for what stands beside them."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from hebblm.report.plots.drawing import Kind, render

__all__ = ["blank", "render"]


def blank(figure: Figure, kind: Kind) -> bytes:
    """Return an empty picture of a figure's proportions, once each of its texts can be set.

    Another kind than PNG is drawn.
    """
    if kind != "png":
        return render(figure, kind)
    renderer = FigureCanvasAgg(figure).get_renderer()
    for text in figure.findobj(Text):
        text.get_window_extent(renderer)  # a user's word that reads as a formula would fail here
    width, height = figure.get_size_inches()
    stream = io.BytesIO()
    Image.new("P", (int(10 * width), int(10 * height))).save(stream, "PNG")
    return stream.getvalue()
