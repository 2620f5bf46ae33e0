"""What the adapters of one run share: head, memory, counts, and the quantities of the present mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TypeVar, cast

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.types import Memory, Neighbors, OutputHead

T = TypeVar("T")


class EvalBatch:
    """The hidden states of a mini-batch and everything computed from them, each at most once.

    Args:
        hidden: (N, D) queries.
        context: head, memory and counts as they are before the batch is observed.
    """

    def __init__(self, hidden: Tensor, context: Context) -> None:
        self.hidden = hidden
        self.context = context
        self.head = context.head
        self._shared: dict[Hashable, object] = {}

    @cached_property
    def logits(self) -> Tensor:
        """(N, V) logits of the base."""
        return self.head.logits(self.hidden)

    @cached_property
    def log_probs(self) -> Tensor:
        """(N, V) log-probabilities of the base, nats."""
        return self.logits.log_softmax(1)

    @cached_property
    def neighbors(self) -> Neighbors:
        """The K nearest entries of each query."""
        return self.context.memory.search(self.hidden, self.context.k)

    @cached_property
    def products(self) -> Tensor:
        """(N, K) ``h_k . h``."""
        return torch.einsum("nkd,nd->nk", self.neighbors.keys.to(self.hidden.dtype), self.hidden)

    def shared(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, computed once for all rules that ask with an equal ``key``."""
        if key not in self._shared:
            self._shared[key] = compute()
        return cast(T, self._shared[key])


class Context:
    """The state that predictions are made from; it changes only by :meth:`observe`, :meth:`set_head`, :meth:`reset`.

    Args:
        head: the base's softmax layer, (V, D).
        memory: retrieved from and written to.
        k: neighbours a query.
        train_counts: (V,) int64 occurrences of each class in training; 0 marks a new class.
        new_classes: (V,) bool classes outside the pre-training vocabulary, None if there are none.
        window: number of most recent pairs kept for caches; 0 for none.

    Raises:
        UserError: k below 1.
    """

    def __init__(
        self,
        head: OutputHead,
        memory: Memory,
        *,
        k: int,
        train_counts: Tensor,
        new_classes: Tensor | None = None,
        window: int = 0,
    ) -> None:
        if k < 1:
            raise UserError(f"k = {k} must be at least 1 neighbour")
        self.head = head
        self.memory = memory
        self.k = k
        self.train_counts = train_counts
        self.new_classes = new_classes
        self.window = window
        self._start()

    def _start(self) -> None:
        self.observed = torch.zeros_like(self.train_counts)
        self.recent_keys = self.head.weight.new_zeros(0, self.head.weight.shape[1])
        self.recent_values = torch.zeros(0, dtype=torch.int64, device=self.head.weight.device)
        self._batch: EvalBatch | None = None

    def batch(self, hidden: Tensor) -> EvalBatch:
        """Return the shared quantities of ``hidden`` (N, D); asking again with the same tensor computes nothing."""
        if self._batch is None or self._batch.hidden is not hidden:
            self._batch = EvalBatch(hidden, self)
        return self._batch

    def observe(self, hidden: Tensor, targets: Tensor, *, write: bool = True) -> None:
        """Take scored pairs (N, D), (N,) into counts, window and, unless ``write`` is False, memory."""
        if write:
            self.memory.add(hidden, targets)
        self.observed += torch.bincount(targets, minlength=len(self.observed))
        if self.window:
            self.recent_keys = torch.cat([self.recent_keys, hidden])[-self.window :]
            self.recent_values = torch.cat([self.recent_values, targets])[-self.window :]
        self._batch = None

    def set_head(self, head: OutputHead) -> None:
        """Take over a head that learned or grew; counts grow with it, new rows being new classes."""
        grown = head.weight.shape[0] - self.train_counts.shape[0]
        if grown:
            self.train_counts = torch.cat([self.train_counts, self.train_counts.new_zeros(grown)])
            self.observed = torch.cat([self.observed, self.observed.new_zeros(grown)])
            known = self.new_classes
            if known is None:
                known = torch.zeros(
                    len(self.train_counts) - grown, dtype=torch.bool, device=self.observed.device
                )
            self.new_classes = torch.cat([known, known.new_ones(grown)])
        self.head = head
        self._batch = None

    def reset(self) -> None:
        """Forget everything observed; the head stays as it was set last."""
        self.memory.reset()
        self._start()
