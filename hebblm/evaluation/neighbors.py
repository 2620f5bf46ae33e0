"""Log of the memory entries that the first tokens of a stream retrieved, and of their places in the
text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.functional.scales import kernel_weight
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.evaluation.observers import Notes
from hebblm.evaluation.scenario import Scenario

KEPT = 10  # nearest neighbours to log for each token
CONTEXT = 12  # words before a neighbour's label


@dataclass(slots=True)
class NeighborLog(Notes):
    """An observer that records retrieved entries.

    A memory numbers its entries in the order of writing, so an entry's position identifies its pair
    in every kind of memory: counted from the end of the entries when the block begins, the stream's
    pairs come last.

    Its columns have one row per neighbour: ``position`` of the token in the stream, ``rank`` of the
    neighbour from 0, ``offset``: the stream position of the neighbour's label or, below 0, its
    place counted from the end of the training pairs; ``label``, squared ``distance`` and
    ``closeness``, the weight c_k of MbPA.

    Args:
        tokens: number of tokens to log, from the beginning of the stream.
        mbpa: settings whose closeness weighs the neighbours.
        write: whether observed pairs go to the memory.
    """

    tokens: int
    mbpa: MbpaConfig
    write: bool

    def __post_init__(self) -> None:
        whole = np.empty(0, np.int64)
        real = np.empty(0, np.float32)
        names = dict.fromkeys(("position", "rank", "offset", "label"), whole)
        self.parts.append({**names, "distance": real, "closeness": real})

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        start = int(batch.context.observed.sum())
        wanted = min(self.tokens - start, len(batch.hidden))
        if wanted <= 0:
            return
        neighbors = batch.searched
        weights = kernel_weight(
            neighbors.distances,
            neighbors.mask,
            eps=self.mbpa.eps,
            normalization=self.mbpa.kernel_weight,
            scale=self.mbpa.scale,
        )
        shift = (start if self.write else 0) - len(batch.context.memory)
        ids = batch.positions().ids[:wanted, :KEPT]  # (n, R)
        row, rank = (ids >= 0).nonzero(as_tuple=True)
        values = {
            "position": start + row,
            "rank": rank,
            "offset": ids[row, rank] + shift,
            "label": neighbors.values[row, rank],
            "distance": neighbors.distances[row, rank],
            "closeness": weights[row, rank],
        }
        self.add(values)


def neighbor_table(log: NeighborLog, scenario: Scenario) -> pa.Table:
    """Return one row per neighbour: position, rank, from_stream, place, label, distance, closeness,
    context.

    ``place`` is that of the label in the stream or in the training text, ``context`` the words
    before it. If tokens are pieces of words, ``position`` and a ``place`` in the stream are those
    of words, as in the table of tokens: a word has the neighbours of its pieces, those of the first
    piece first. Labels and contexts are pieces, and a place in the training text counts pieces.
    """
    columns = log.columns()
    stream = scenario.stream
    config = scenario.config
    place = columns["offset"].astype(np.int64)
    from_stream = place >= 0
    train = stream.targets[:0]
    if not from_stream.all():
        train = np.asarray(scenario.training_ids(), dtype=np.int64)
        kept = min(len(train) - 1, config.training_entries)  # the last pairs of the text
        order = scenario.model.label_places(kept) + len(train) - 1 - kept
        place = np.where(from_stream, place, order[np.minimum(place, -1)])
    symbols = np.asarray(stream.symbols, dtype=object)
    space = " " if stream.pieces is None else ""
    contexts = []
    for at, streamed in zip(place.tolist(), from_stream.tolist(), strict=True):
        text = stream.targets if streamed else train
        contexts.append(space.join(symbols[text[max(0, at - CONTEXT) : at]]))
    position = columns["position"].astype(np.int64)
    rank = columns["rank"].astype(np.int64)
    if stream.pieces is not None:
        first = stream.pieces.first
        word = first[position]
        rank = rank + KEPT * (position - np.searchsorted(first, word))
        position = word
        place = np.where(from_stream, first[np.where(from_stream, place, 0)], place)
    table = {  # without rows strings would have no type
        "position": position,
        "rank": rank,
        "from_stream": from_stream,
        "place": place,
        "label": pa.array(symbols[columns["label"].astype(np.int64)], type=pa.string()),
        "distance": columns["distance"],
        "closeness": columns["closeness"],
        "context": pa.array(contexts, type=pa.string()),
    }
    return pa.table(table)
