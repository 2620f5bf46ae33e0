"""A query's view of its stream: the rows of its own block before it, and the latest pairs before
the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

# tokens after which shares learn within an interval: these are scored already, and a step costs
# little
STEP = 10


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive tokens, of one stream or several side by side, whose states are known before
    their labels are scored.

    They are predicted at once, each only from earlier observations.
    """

    # (N,) int64, what followed each state; row i's own label and later ones are never read for row
    # i
    labels: Tensor
    # (N,) int64 ascending: row i is predicted when the first visible[i] <= i rows were observed
    visible: Tensor
    used: int  # the most rows that any row sees
    written: bool  # whether observed rows are in the memory
    streams: Tensor | None = None  # (N,) int64 stream of each row; None if all are of the first

    @classmethod
    def of(cls, labels: Tensor, every: int, written: bool) -> Block:
        """Return a block of ``labels`` (N,) that starts with an update and has one every ``every``
        tokens.
        """
        rows = torch.arange(len(labels), device=labels.device)
        return cls(labels, rows // every * every, (len(labels) - 1) // every * every, written)

    @classmethod
    def of_streams(
        cls, labels: Tensor, intervals: Sequence[Mapping[int, int]], written: bool
    ) -> Block:
        """Return a block of several streams: all are observed before each interval, which holds one
        after the other.

        ``labels`` (N,) are in that order; an interval says how many rows it has of each stream.
        """
        where = labels.device
        sizes = torch.tensor([sum(rows.values()) for rows in intervals], device=where)
        before = sizes.cumsum(0) - sizes
        streams = torch.tensor([stream for rows in intervals for stream in rows], device=where)
        lengths = torch.tensor(
            [length for rows in intervals for length in rows.values()], device=where
        )
        visible = before.repeat_interleave(sizes)
        return cls(labels, visible, int(before[-1]), written, streams.repeat_interleave(lengths))

    def by_stream(self) -> Iterator[tuple[int, Tensor | slice, Block]]:
        """Yield each stream, its rows, and the block of these rows alone."""
        if self.streams is None:
            yield 0, slice(None), self
            return
        for stream in torch.unique(self.streams).tolist():
            rows = (self.streams == stream).nonzero().squeeze(1)
            visible = torch.searchsorted(rows, self.visible[rows].contiguous())
            yield stream, rows, Block(self.labels[rows], visible, int(visible[-1]), self.written)

    @property
    def causal(self) -> bool:
        """Whether any row was observed before another one is predicted."""
        return self.used > 0

    @property
    def in_memory(self) -> Tensor:
        """(N,) how many of the block's rows the memory holds when each row is predicted."""
        return self.visible if self.written else torch.zeros_like(self.visible)


def learning_places(starts: Iterable[int], total: int) -> list[int]:
    """Return the places where shares learn: 0, and every ten tokens between two ``starts`` of
    intervals.
    """
    return [at for start, end in pairwise([*starts, total]) for at in range(start, end, STEP)] or [
        0
    ]


@dataclass(frozen=True, slots=True)
class WindowView:
    """A mini-batch's view of a window of W pairs."""

    products: Tensor  # (N, W) h_k . h
    labels: Tensor  # (N, W) int64, or (1, W) if all queries look back at the same pairs
    seen: Tensor  # (N, W) bool, the entries a query sees


class Window:
    """The latest pairs of state and label, up to a fixed ``size``; 0 keeps none.

    They lie in one run of memory: a pair is copied once when it is added and, on average, once more
    when the run reaches the end of its buffer. The buffer holds at most twice the size, and no more
    than the added pairs need. The states take dtype and device of ``like``, a tensor of width D.
    """

    def __init__(self, size: int, like: Tensor) -> None:
        self.size = size
        self._keys = like.new_empty(0, like.shape[-1])
        self._labels = torch.empty(0, dtype=torch.int64, device=like.device)
        self._begin = self._end = 0

    def append(self, keys: Tensor, labels: Tensor) -> None:
        """Add pairs (N, D), (N,); the oldest ones beyond the size are forgotten."""
        keys, labels = keys[-self.size :] if self.size else keys[:0], labels[-self.size :]
        if not len(keys):
            return
        # the run is at its buffer's end: what is kept moves to the start
        if self._end + len(keys) > 2 * self.size:
            old_keys, old_labels = self.latest(self.size - len(keys))
            self._keys[: len(old_keys)] = old_keys.clone()
            self._labels[: len(old_keys)] = old_labels.clone()
            self._begin, self._end = 0, len(old_keys)
        stop = self._end + len(keys)
        self._make_room(stop)
        self._keys[self._end : stop], self._labels[self._end : stop] = keys, labels
        self._begin, self._end = max(self._begin, stop - self.size), stop

    def state_dict(self) -> dict[str, Tensor]:
        keys, labels = self.latest(self.size)
        return {"begin": torch.tensor(self._begin), "keys": keys, "labels": labels}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the latest pairs of :meth:`state_dict`, of a window of this size or another.

        They lie at the same offset where it fits: a product's last bit may depend on it.
        """
        begin = int(state["begin"])
        end = begin + len(state["labels"])
        if end - begin > self.size or end > 2 * self.size:  # saved by a window of another size
            self._begin = self._end = 0
            self.append(state["keys"], state["labels"])
            return
        self._begin, self._end = begin, end
        self._make_room(end)
        self._keys[begin:end] = state["keys"]
        self._labels[begin:end] = state["labels"]

    def _make_room(self, rows: int) -> None:
        if rows > len(self._keys):
            rows = min(2 * self.size, max(rows, 2 * len(self._keys)))
            self._keys.resize_(rows, self._keys.shape[1])  # what it holds stays where it is
            self._labels.resize_(rows)

    def latest(self, count: int) -> tuple[Tensor, Tensor]:
        """Return views of the ``count`` latest states (W, D) and labels (W,), fewer at the
        beginning.
        """
        begin = max(self._begin, self._end - count)
        return self._keys[begin : self._end], self._labels[begin : self._end]

    def view(self, hidden: Tensor, size: int, block: Block | None) -> WindowView:
        """Return the view that queries (N, D) have of the ``size`` latest pairs, including their
        own block's.

        ``block`` is None for queries that are not part of the stream.
        """
        size = min(size, self.size)
        keys, labels = self.latest(size)
        if block is None or not block.causal:
            products = hidden @ keys.t()
            return WindowView(products, labels[None], torch.ones_like(products, dtype=torch.bool))
        used = block.used
        products = hidden.new_empty(len(hidden), len(keys) + used)
        torch.mm(hidden, keys.t(), out=products[:, : len(keys)])
        torch.mm(hidden, hidden[:used].t(), out=products[:, len(keys) :])
        labels = torch.cat([labels, block.labels[:used]])[None]
        return WindowView(products, labels, _seen(products, len(keys), size, block))


def narrowed(view: WindowView, size: int, block: Block | None) -> WindowView:
    """Return the view of the ``size`` latest pairs of one stream, given that of more of them."""
    used = block.used if block is not None and block.causal else 0
    wide = view.products.shape[1]
    kept = min(size, wide - used)  # pairs from before the block
    products = view.products[:, wide - used - kept :]
    seen = _seen(products, kept, size, block)
    return WindowView(products, view.labels[:, wide - used - kept :], seen)


def _seen(products: Tensor, kept: int, size: int, block: Block | None) -> Tensor:
    """Return which of the pairs (N, W) each query sees, bool: the first ``kept`` come from before
    the block.
    """
    seen = torch.ones_like(products, dtype=torch.bool)
    if block is None or not block.causal:
        return seen
    column = torch.arange(products.shape[1], device=products.device)
    stop = block.visible[:, None] + kept  # (N, 1)
    seen[:, kept:] = column[kept:] < stop
    # as rows of the block come in, the oldest pairs go
    leaving = max(0, products.shape[1] - size)
    seen[:, :leaving] &= column[:leaving] >= stop - size
    return seen


def view_of(
    windows: Sequence[Window], hidden: Tensor, size: int, block: Block | None
) -> WindowView:
    """Return the view that queries (N, D) have of the ``size`` latest pairs of their own streams, a
    window each.
    """
    if block is None or block.streams is None:
        return windows[0].view(hidden, size, block)
    views = [
        (rows, windows[stream].view(hidden[rows], size, part))
        for stream, rows, part in block.by_stream()
    ]
    shape = len(hidden), max(view.products.shape[1] for _, view in views)
    whole = WindowView(
        hidden.new_zeros(shape),
        torch.zeros(shape, dtype=torch.int64, device=hidden.device),
        torch.zeros(shape, dtype=torch.bool, device=hidden.device),
    )
    for rows, view in views:
        width = view.products.shape[1]
        whole.products[rows, :width] = view.products
        whole.labels[rows, :width] = view.labels.expand_as(view.products)
        whole.seen[rows, :width] = view.seen
    return whole
