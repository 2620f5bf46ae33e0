"""Chapters on images: one section an experiment, by the tables and plots that the experiments
themselves have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from hebblm.errors import UserError
from hebblm.report.plots.drawing import Picture
from hebblm.vision.experiments import RUNS
from hebblm.vision.plots import figures
from hebblm.vision.tables import tables
from recipes.study.book.section import Section


def image_sections(documents: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Return the chapters, none without results."""
    if not documents:
        return []
    sections = [Section("Images")]
    for name, document in documents.items():
        with complete(name):
            sections.append(_experiment(name, document))
    return sections


@contextlib.contextmanager
def complete(name: str) -> Iterator[None]:
    """Turn what is missing from a result that is being read into one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise UserError(
            f"{name} lacks parts of a result ({error!r}); run hebblm-vision again"
        ) from error


def _experiment(name: str, document: Mapping[str, Any]) -> Section:
    """Return the section of one result; an experiment that the book does not know is named in one
    line.
    """
    experiment, by = document["experiment"], document["provenance"]
    title = f"{experiment}, {document['scale']}: {name}"
    origin = f"{by['command']}: commit {str(by['commit'])[:12]}, device {by['device']}."
    if experiment not in RUNS:
        return Section(
            title, (origin, f"The book does not know the experiment {experiment!r}."), level=2
        )
    pictures = []
    for kind, caption, figure in figures(document, most=0):
        pictures.append(Picture(f"{name.replace('/', '-')}-{kind}", f"{caption}, {name}", figure))
    return Section(title, (origin,), tuple(tables(document)), tuple(pictures), level=2)
