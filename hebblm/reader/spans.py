"""The text that a memory's entries come from: their words, documents and places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hebblm.memory import AnyMemory
from hebblm.models.base import TrainedModel
from hebblm.reader.history import WrittenSpan

Ints = npt.NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True)
class WrittenText:
    """Entries of a memory (M,), in the order of writing."""

    ids: Ints  # (M,) token that is the label of each entry
    documents: Ints  # (M,) number of the document, in the order of their beginnings, or UNKNOWN
    tokens: Ints  # (M,) place in its document, from 0
    names: tuple[str | None, ...]  # of the documents
    stream: Ints  # (S,) entries of the present stream, in its order

    @classmethod
    def of(
        cls, memory: AnyMemory, texts: Sequence[WrittenSpan], model: TrainedModel
    ) -> WrittenText:
        """Return the text of a memory that texts were written to, one after the other."""
        ids = np.concatenate([part.values.cpu().numpy() for part in memory.segments()])
        names: list[str | None] = []
        documents: list[Ints] = []
        tokens: list[Ints] = []
        streams: list[npt.NDArray[np.bool_]] = []
        for text in texts:
            if text.lengths is None:  # its entries and those before it have no known place
                documents, tokens, streams, names = [], [], [], []
                continue
            of_texts, places = interleaved(text.lengths, text.every)
            if text.pieces:
                places = pieces_in_order(model, text.pieces)
            streams.append(of_texts == len(text.lengths) - 1)
            documents.append(of_texts + len(names))
            tokens.append(places)
            names += text.names
        total = len(ids)
        return cls(
            ids,
            _last(documents, total),
            _last(tokens, total),
            tuple(names),
            np.flatnonzero(_last(streams, total)),
        )

    @cached_property
    def order(self) -> Ints:
        """(M,) entries by document and place; first come those of unknown documents, in the order
        of writing.
        """
        tokens = np.where(self.documents == UNKNOWN, np.arange(len(self.ids)), self.tokens)
        return np.lexsort((tokens, self.documents))

    @cached_property
    def rank(self) -> Ints:
        """(M,) place of each entry in :attr:`order`."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        return rank

    def matches(self, entries: Ints, context: Ints) -> Ints:
        """Return how many tokens (N,) just before each entry (N,) match those of a context, nearest
        first.
        """
        length, going = np.zeros_like(entries), np.ones(len(entries), dtype=np.bool_)
        for number, token in enumerate(context.tolist(), 1):
            at = self.rank[entries] - number
            before = self.order[np.maximum(at, 0)]
            going &= (
                (at >= 0)
                & (self.ids[before] == token)
                & (self.documents[before] == self.documents[entries])
            )
            length += going
        return length

    def around(self, entry: int, words: int) -> tuple[Ints, Ints]:
        """Return at most ``words`` tokens before an entry in its document, and as many after it."""
        at = int(self.rank[entry])
        run = self.order[max(0, at - words) : at + words + 1]
        steps = np.arange(len(run)) - min(at, words)
        same_document = self.documents[run] == self.documents[entry]
        if self.documents[entry] != UNKNOWN:  # a text that was read in part twice may have gaps
            same_document &= self.tokens[run] - self.tokens[entry] == steps
        return self.ids[run[same_document & (steps < 0)]], self.ids[
            run[same_document & (steps > 0)]
        ]


def interleaved(lengths: Sequence[int], every: int) -> tuple[Ints, Ints]:
    """Return document and place (T,) of tokens that are written an interval of every document at a
    time.
    """
    runs = [
        (document, np.arange(start, min(start + every, length)))
        for start in range(0, max(lengths, default=0), every)
        for document, length in enumerate(lengths)
        if start < length
    ]
    documents = np.repeat([document for document, _ in runs], [len(places) for _, places in runs])
    return documents.astype(np.int64), np.concatenate(
        [np.arange(0), *(places for _, places in runs)]
    )


def pieces_in_order(model: TrainedModel, lengths: Iterable[int]) -> Ints:
    """Return the places (T,) of the tokens of a text that a model read in pieces, each in the
    model's own order.
    """
    begin, places = 0, [np.arange(0)]
    for length in lengths:
        places.append(begin + model.label_places(length) - 1)
        begin += length
    return np.concatenate(places)


def _last(parts: Sequence[npt.NDArray[np.generic]], total: int) -> Ints:
    """Return the last ``total`` values of joined parts, with UNKNOWN in front if they are fewer."""
    joined = np.concatenate([np.full(total, UNKNOWN), *parts])
    return joined[len(joined) - total :]
