"""The documents that a text is made of, where its format says so: files of a folder, records, articles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.text import EvaluationStream
from hebblm.text.sources import LineSource


class Document(NamedTuple):
    """A document and the place of its first word in the text, ends of line counted as words."""

    name: str
    begin: int


def documents_of(stream: EvaluationStream, source: LineSource | None) -> list[Document]:
    """Return the documents of a text: files or records that its lines come from, or articles below ``= Title =``.

    Args:
        stream: the text, or its beginning.
        source: of its lines, None where that is not known.

    Returns:
        Two or more, the first from the first word on; nothing where the text is a single one.
    """
    words = stream.reported
    starts = np.concatenate([[0], np.flatnonzero(words.ids == words.eos) + 1])  # of lines, by words
    found: list[Document] = []
    if source is not None:
        # Of a text that is read in part the rest is not opened.
        lines = takewhile(lambda found: found[1] < len(starts), source.documents())
        found = [Document(name, int(starts[line])) for name, line in lines]
    if len(found) < 2:
        found = list(_articles(words, starts))
    found = [document for document in found if document.begin < len(words)]
    return [found[0]._replace(begin=0), *found[1:]] if len(found) > 1 else []


def borders(stream: EvaluationStream, documents: Sequence[Document]) -> list[int]:
    """Return the place of each document's first token."""
    begins = np.array([document.begin for document in documents], dtype=np.int64)
    if stream.pieces is not None:
        begins = np.searchsorted(stream.pieces.first, begins)
    return list(map(int, begins))


def by_document(documents: Sequence[Document], nll: Mapping[str, npt.NDArray[np.float32]]) -> list[dict[str, Any]]:
    """Return name, tokens and by method the mean loss of each document, nats, from the losses (U,) of the words."""
    total = len(next(iter(nll.values())))
    ends = [document.begin for document in documents[1:]] + [total]
    return [
        {
            "name": document.name,
            "tokens": end - document.begin,
            "nll": {name: float(losses[document.begin : end].mean(dtype=np.float64)) for name, losses in nll.items()},
        }
        for document, end in zip(documents, ends, strict=True)
    ]


def _articles(words: EvaluationStream, starts: npt.NDArray[np.int64]) -> Iterator[Document]:
    """Yield the articles of a text like WikiText: each begins with ``= Title =``, its sections with more signs."""
    if "=" not in words.symbols:
        return
    sign = words.symbols.index("=")
    for begin, end in pairwise(starts.tolist()):
        line = words.ids[begin : end - 1]
        if len(line) > 2 and line[0] == line[-1] == sign and sign not in (line[1], line[-2]):
            yield Document(" ".join(words.symbols[index] for index in line[1:-1].tolist()), begin)
