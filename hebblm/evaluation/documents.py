"""The documents of a text, if its format shows them: files of a folder, records, articles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.text import EvaluationStream
from hebblm.text.sources import LineSource


class Document(NamedTuple):
    """A document of a text."""

    name: str  # of its file, record or article
    begin: int  # place of its first word in the text, ends of line counted as words
    # as read, with one byte per end of line; None if the lines are not available
    bytes: int | None = None


def documents_of(stream: EvaluationStream, source: LineSource | None) -> list[Document]:
    """Return the documents of a text: files or records that its lines come from, or articles below
    ``= Title =``.

    Returns:
        Two or more, the first from the first word on; empty if the text is a single document.
    """
    words = stream.reported
    starts = np.concatenate([[0], np.flatnonzero(words.ids == words.eos) + 1])  # of lines, by words
    lines: list[tuple[str, int]] = []
    if source is not None:
        # If a text is read in part, the rest is not opened.
        lines = list(takewhile(lambda document: document[1] < len(starts), source.documents()))
    if len(lines) < 2:
        lines = list(_articles(words, starts))
    lines = [(name, line) for name, line in lines if starts[line] < len(words)]
    if len(lines) < 2:
        return []
    begins = [line for _, line in lines]
    begins[0] = 0
    sizes: list[int | None] = [None] * len(lines)
    if source is not None:
        counted = [len(line.encode()) + 1 for line in islice(source.lines(), begins[-1])]
        before = [sum(counted[begin:end]) for begin, end in pairwise(begins)]
        sizes = [*before, stream.bytes - sum(before)]  # the last one may be read in part
    documents = []
    for (name, _), at, size in zip(lines, begins, sizes, strict=True):
        documents.append(Document(name, int(starts[at]), size))
    return documents


def borders(stream: EvaluationStream, documents: Sequence[Document]) -> list[int]:
    """Return the place of each document's first token."""
    begins = np.array([document.begin for document in documents], dtype=np.int64)
    if stream.pieces is not None:
        begins = np.searchsorted(stream.pieces.first, begins)
    return list(map(int, begins))


def by_document(
    documents: Sequence[Document],
    stream: EvaluationStream,
    nll: Mapping[str, npt.NDArray[np.float32]],
) -> list[dict[str, Any]]:
    """Return the losses of each document by each method, as JSON.

    Returns:
        For each document its name, tokens (words, if tokens are pieces of them), bytes, and by
        method mean nats a token and bits a byte; for pieces also their number and mean nats a
        piece.
    """
    word_begins = [document.begin for document in documents]
    words = pairwise([*word_begins, len(stream.reported)])
    places = pairwise([*borders(stream, documents), len(stream)])
    by_word = {name: stream.word_losses(losses) for name, losses in nll.items()}
    records = []
    for document, (first, last), (begin, end) in zip(documents, words, places, strict=True):
        means = {}
        sums = {}
        for name, losses in nll.items():
            means[name] = float(by_word[name][first:last].mean(dtype=np.float64))
            sums[name] = float(losses[begin:end].sum(dtype=np.float64))
        record: dict[str, Any] = {
            "name": document.name,
            "tokens": last - first,
            "nll": means,
        }
        if stream.pieces is not None:
            count = end - begin
            record["pieces"] = count
            record["piece_nll"] = {name: total / max(1, count) for name, total in sums.items()}
        if document.bytes:
            spelled = 8 * int(stream.spelled[begin:end].sum())
            record["bytes"] = document.bytes
            record["bits_per_byte"] = {
                name: (total / math.log(2) + spelled) / document.bytes
                for name, total in sums.items()
            }
        records.append(record)
    return records


def _articles(words: EvaluationStream, starts: npt.NDArray[np.int64]) -> Iterator[tuple[str, int]]:
    """Return name and first line of the articles of a text like WikiText: each begins with ``=
    Title =``.
    """
    if "=" not in words.symbols:
        return
    sign = words.symbols.index("=")
    for number, (begin, end) in enumerate(pairwise(starts.tolist())):
        line = words.ids[begin : end - 1]
        if len(line) > 2 and line[0] == line[-1] == sign and sign not in (line[1], line[-2]):
            yield " ".join(words.symbols[index] for index in line[1:-1].tolist()), number
