"""The most recent states of the stream and what followed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.block import Block


@dataclass(frozen=True, slots=True)
class WindowView:
    """View of a window from a mini-batch.

    Args:
        products: (N, W) ``h_k . h``.
        labels: (N, W) int64, or (1, W) where all queries look back at the same pairs.
        seen: (N, W) bool, the entries a query sees.
    """

    products: Tensor
    labels: Tensor
    seen: Tensor


class Window:
    """The latest pairs of state and label, up to a number that is fixed.

    They lie in one run of memory: a pair is copied once when it is added and, on average, once more when the run has
    come to the end of its buffer. That one holds twice the size at most, and no more than what was added asks for.

    Args:
        size: the most pairs that are kept; 0 keeps none.
        like: a tensor of width D, whose dtype and device the states take.
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
        if self._end + len(keys) > 2 * self.size:
            kept = self.size - len(keys)
            old_keys, old_labels = self.latest(kept)
            self._keys[: len(old_keys)] = old_keys.clone()
            self._labels[: len(old_keys)] = old_labels.clone()
            self._begin, self._end = 0, len(old_keys)
        stop = self._end + len(keys)
        self._make_room(stop)
        self._keys[self._end : stop], self._labels[self._end : stop] = keys, labels
        self._begin, self._end = max(self._begin, stop - self.size), stop

    def state_dict(self) -> dict[str, Tensor]:
        """Return the pairs kept and where they lie, as :meth:`load_state_dict` takes them over."""
        keys, labels = self.latest(self.size)
        return {"begin": torch.tensor(self._begin), "keys": keys, "labels": labels}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state_dict` gave, at the same place: a product's last bit may depend on it."""
        self._begin = int(state["begin"])
        self._end = self._begin + len(state["labels"])
        self._make_room(self._end)
        self._keys[self._begin : self._end] = state["keys"]
        self._labels[self._begin : self._end] = state["labels"]

    def _make_room(self, rows: int) -> None:
        """Let the buffer hold so many rows or more; what it holds stays where it is."""
        if rows > len(self._keys):
            rows = min(2 * self.size, max(rows, 2 * len(self._keys)))
            self._keys.resize_(rows, self._keys.shape[1])
            self._labels.resize_(rows)

    def latest(self, count: int) -> tuple[Tensor, Tensor]:
        """Return views of the ``count`` latest states (W, D) and labels (W,), fewer at the beginning."""
        begin = max(self._begin, self._end - count)
        return self._keys[begin : self._end], self._labels[begin : self._end]

    def view(self, hidden: Tensor, size: int, block: Block | None) -> WindowView:
        """Return what queries see of the ``size`` latest pairs, those of their own block included.

        Args:
            hidden: (N, D) queries.
            size: W; the window's own if that is smaller.
            block: the stream's rows that the queries are, None if they are not part of it.
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
        seen = torch.ones_like(products, dtype=torch.bool)
        place = torch.arange(products.shape[1], device=hidden.device)
        stop = block.visible[:, None] + len(keys)  # (N, 1)
        seen[:, len(keys) :] = place[len(keys) :] < stop
        leaving = max(0, products.shape[1] - size)  # as rows of the block come in, the oldest pairs go
        seen[:, :leaving] &= place[:leaving] >= stop - size
        return WindowView(products, torch.cat([labels, block.labels[:used]])[None], seen)


def view_of(windows: Sequence[Window], hidden: Tensor, size: int, block: Block | None) -> WindowView:
    """Return what queries see of the ``size`` latest pairs of their own streams; see :meth:`Window.view`.

    Args:
        windows: by stream.
        hidden: (N, D) queries.
        size: W.
        block: says which stream each query is of.
    """
    if block is None or block.streams is None:
        return windows[0].view(hidden, size, block)
    found = [(rows, windows[stream].view(hidden[rows], size, own)) for stream, rows, own in block.by_stream()]
    shape = len(hidden), max(view.products.shape[1] for _, view in found)
    whole = WindowView(
        hidden.new_zeros(shape),
        torch.zeros(shape, dtype=torch.int64, device=hidden.device),
        torch.zeros(shape, dtype=torch.bool, device=hidden.device),
    )
    for rows, view in found:
        width = view.products.shape[1]
        whole.products[rows, :width] = view.products
        whole.labels[rows, :width] = view.labels.expand_as(view.products)
        whole.seen[rows, :width] = view.seen
    return whole
