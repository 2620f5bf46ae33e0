from __future__ import annotations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from hebblm.report.methods import Look
from hebblm.vision.document import draw


@pytest.mark.parametrize(("most", "names"), [(0, "abcdefgh"), (6, "adefgh"), (8, "abcdefgh")])
def test_the_first_line_and_the_highest_are_drawn_and_the_rest_counted(most: int, names: str) -> None:
    curves = {
        Look(name, "#000000"): [(1, {"mean": 0.1, "std": None}), (2, {"mean": at / 10, "std": None})]
        for at, name in enumerate("abcdefgh")
    }
    axis = Figure(figsize=(6, 4), layout="constrained").subplots()
    draw(axis, curves, most=most)
    assert len(axis.get_lines()) == len(names)
    labels = [text.get_text()[0] for text in axis.texts if isinstance(text, Annotation)]
    assert labels == list(names)
    notes = [text.get_text() for text in axis.texts if not isinstance(text, Annotation)]
    assert notes == ([] if len(names) == 8 else ["2 more: see the tables"])
