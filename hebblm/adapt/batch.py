"""A mini-batch of queries and everything computed from it, each quantity at most once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor

from hebblm.adapt.block import Block
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.adapt.functional.shares import LearnedShare
from hebblm.adapt.solvers.problem import key_products
from hebblm.adapt.window import WindowView, view_of
from hebblm.adapt.work import Stopwatch, Work, clock_of, name_of
from hebblm.errors import UserError
from hebblm.memory.causal import WrittenBlock
from hebblm.memory.nearest import Ranked
from hebblm.types import Neighbors

if TYPE_CHECKING:
    from hebblm.adapt.context import Context
    from hebblm.adapt.methods.rule import Blend

T = TypeVar("T")
SEARCH = "neighbors"
"""Name of the piece of work that finds the neighbours."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a scored mini-batch leaves behind.

    Args:
        hidden: (N, D).
        queries: (N, D_key).
        labels: (N,) int64.
        block: says of which stream each row is.
        key_normalizers: (N,) as :attr:`EvalBatch.key_normalizers` has them.
        shares: by stream, the learned ones behind it.
    """

    hidden: Tensor
    queries: Tensor
    labels: Tensor
    block: Block | None
    key_normalizers: Tensor | None
    shares: dict[int, dict[Blend, LearnedShare]]


class EvalBatch:
    """The hidden states of a mini-batch and everything computed from them, each at most once.

    ``stopwatch`` knows what each shared piece took and who rests on it, the base's logits apart.

    Args:
        hidden: (N, D) queries; behind them, where the memory has keys of another layer, these (N, D + D_key).
        context: head, memory and counts as they are before the batch is observed.
        block: where the queries are rows of the stream of which later ones come after earlier ones were observed;
            None if all come before anything is observed.
        ranked: (N, K) where the neighbours lie, if that is known.
    """

    def __init__(
        self, hidden: Tensor, context: Context, block: Block | None = None, ranked: Ranked | None = None
    ) -> None:
        width = context.head.weight.shape[1]
        self.states = hidden
        self.keyed = hidden.shape[1] > width
        self.hidden = hidden[:, :width] if self.keyed else hidden
        self.queries = hidden[:, width:] if self.keyed else hidden
        self.context = context
        self.block = block
        self.ranked = ranked
        self.head = context.head
        self.stopwatch = Stopwatch(clock_of(hidden.device))
        self._shared: dict[Hashable, tuple[Work, object]] = {}

    @cached_property
    def logits(self) -> Tensor:
        """(N, V) logits of the base."""
        return self.head.logits(self.hidden)

    @property
    def log_probs(self) -> Tensor:
        """(N, V) log-probabilities of the base, nats."""
        return self.shared("log-probabilities", lambda: self.logits.log_softmax(1))

    @cached_property
    def log_normalizers(self) -> Tensor:
        """(N,) logsumexp of the base's logits, nats."""
        return self.logits.logsumexp(1)

    @cached_property
    def key_normalizers(self) -> Tensor | None:
        """(N,) logsumexp of the base's logits of the keys as the memory stores them; None if the head moves."""
        if not self.context.fixed:
            return None
        dtype = self.context.memory.dtype
        if torch.finfo(dtype).bits >= torch.finfo(self.hidden.dtype).bits:
            return self.log_normalizers
        return log_normalizers(self.hidden.to(dtype), self.head)

    def base_losses(self, targets: Tensor) -> Tensor:
        """Return the base's loss (N,) in nats of ``targets`` (N,)."""
        return self.log_normalizers - self.logits.gather(1, targets[:, None]).squeeze(1)

    @property
    def neighbors(self) -> Neighbors:
        """The K nearest entries of each query, among those written before it."""
        return self.shared(SEARCH, self._search)

    def _search(self) -> Neighbors:
        written = self.written
        if written is None:
            found = self.context.memory.search(self.queries, self.context.k)
        else:
            found = written.search(self.context.k) if self.ranked is None else written.gather(self.ranked)
        return found if self.context.fixed else replace(found, log_normalizers=None)  # those kept are stale

    @cached_property
    def written(self) -> WrittenBlock | None:
        """The block beside the memory it is written to; None where the memory alone answers."""
        block = self.block
        if block is None or (self.ranked is None and not (block.written and block.causal)):
            return None
        return WrittenBlock(
            self.context.memory, self.queries, block.labels, block.in_memory, self.key_normalizers
        )

    def check_keys(self, method: str) -> None:
        """Refuse a method that adapts the head with neighbours whose keys are of another layer.

        Raises:
            UserError: naming it.
        """
        if self.keyed:
            raise UserError(
                f"{method} adapts the output layer with what enters it; use --key last, or knn or mixture"
            )

    def window(self, size: int) -> WindowView:
        """Return what the queries see of the ``size`` latest pairs of the stream."""
        windows = [trail.recent for trail in self.context.trails]
        return self.shared(("window", size), lambda: view_of(windows, self.hidden, size, self.block))

    @property
    def products(self) -> Tensor:
        """(N, K) ``h_k . h``."""
        return self.shared("products", lambda: key_products(self.queries, self.neighbors.keys))

    def learned_share(self, blend: Blend) -> Tensor:
        """Return the share (N,) of a blend's first part, float64: for each query what was learned before it."""

        def compute() -> Tensor:
            block = self.block
            if block is None:
                shares = self._shares(blend, 0, None, [])
                return self._numbers(shares).expand(len(self.hidden))
            evidence = self._evidence(blend, block.labels[: block.used])
            values = torch.empty(len(self.hidden), dtype=torch.float64, device=self.hidden.device)
            for stream, rows, own in block.by_stream():
                shares = self._shares(blend, stream, own, evidence[rows][: own.used].tolist())
                values[rows] = self._numbers(shares)[
                    torch.unique_consecutive(own.visible, return_inverse=True)[1]
                ]
            return values

        return self.shared(("share", blend), compute)

    def _numbers(self, shares: list[LearnedShare]) -> Tensor:
        """Return the values of shares (n,), float64."""
        return torch.tensor([share.value for share in shares], dtype=torch.float64, device=self.hidden.device)

    def shares_behind(self, labels: Tensor) -> dict[int, dict[Blend, LearnedShare]]:
        """Return by stream all learned shares as they are once the batch's labels (N,) are known."""
        streams = [(0, slice(None), None)] if self.block is None else list(self.block.by_stream())
        evidence = {blend: self._evidence(blend, labels) for blend in self.context.blends}
        return {
            stream: {
                blend: self._shares(blend, stream, own, found[rows].tolist())[-1]
                for blend, found in evidence.items()
            }
            for stream, rows, own in streams
        }

    def _shares(
        self, blend: Blend, stream: int, own: Block | None, evidence: list[float]
    ) -> list[LearnedShare]:
        """Return a stream's share before the batch and behind each interval of its first rows, with their evidence."""
        if blend not in self.context.blends:
            raise ValueError(f"the share of {blend} is learned; tell its context so with learn_shares first")
        shares, ends = [self.context.trails[stream].shares[blend]], [len(evidence)] if evidence else []
        if own is not None:
            ends = [end for end in sorted(set(own.visible.tolist())) if 0 < end < len(evidence)] + ends
        for start, end in zip([0, *ends], ends, strict=False):
            shares.append(shares[-1].after(evidence[start:end]))
        return shares

    def _evidence(self, blend: Blend, labels: Tensor) -> Tensor:
        """Return the nats (N,) by which a blend's first part predicted each of the first labels (n,) better.

        The others, whose labels are not to be looked at yet, get nothing of meaning.
        """
        if not len(labels):
            return self.hidden.new_empty(len(self.hidden), dtype=torch.float64)
        targets = labels if self.block is None else self.block.labels
        known = targets < len(self.head.weight)  # a new word has no row yet
        if not known.all():
            targets = torch.where(known, targets, 0)
        first, second = self.parts(blend, targets)
        return torch.where(known, (second - first).double(), torch.nan)

    def parts(self, blend: Blend, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of ``targets`` (N,) under both parts of a blend, computed once; nats."""
        return self.scored(("parts", blend), targets, lambda: blend.parts(self, targets))

    def lesson(self, targets: Tensor) -> Lesson:
        """Return what is to be learned of the batch, whose labels (N,) are scored.

        Labels of words that its head has no row for say nothing of a share.
        """
        normalizers = self.key_normalizers if self.context.fixed else None
        shares = self.shares_behind(targets)
        return Lesson(self.hidden, self.queries, targets, self.block, normalizers, shares)

    def scored(self, rule: Hashable, targets: Tensor, compute: Callable[[], T]) -> T:
        """Return ``compute()``, losses of ``targets`` (N,) under a rule, computed once for all that build on it."""
        # With the labels in the value they stay alive, so that no other tensor takes over their identity.
        key = (rule, "losses", id(targets))
        return self.shared(key, lambda: (targets, compute()))[1]

    def shared(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, computed once for all rules that ask with an equal ``key``."""
        if key not in self._shared:
            with self.stopwatch.time(name_of(key)) as work:
                value = compute()
            self._shared[key] = work, value
        work, known = self._shared[key]
        self.stopwatch.use(work)
        return cast(T, known)
