"""What the adapters of one run share: head, memory, counts, and the quantities of the present mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor

from hebblm.adapt.block import Block
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.adapt.functional.shares import LearnedShare
from hebblm.adapt.solvers.problem import key_products
from hebblm.adapt.window import Window, WindowView
from hebblm.adapt.work import Stopwatch, Work, clock_of, name_of
from hebblm.errors import UserError
from hebblm.memory.base import AnyMemory
from hebblm.memory.causal import WrittenBlock
from hebblm.memory.nearest import Ranked
from hebblm.types import Neighbors, OutputHead

if TYPE_CHECKING:
    from hebblm.adapt.methods.rule import Blend, Rule

T = TypeVar("T")
SEARCH = "neighbors"
"""Name of the piece of work that finds the neighbours."""


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
        return self.shared(("window", size), lambda: self.context.recent.view(self.hidden, size, self.block))

    @property
    def products(self) -> Tensor:
        """(N, K) ``h_k . h``."""
        return self.shared("products", lambda: key_products(self.queries, self.neighbors.keys))

    def learned_share(self, blend: Blend) -> Tensor:
        """Return the share (N,) of a blend's first part, float64: for each query what was learned before it."""

        def compute() -> Tensor:
            block = self.block
            shares = self._shares(blend, None if block is None else block.labels[: block.used])
            values = torch.tensor([share.value for share in shares], dtype=torch.float64)
            values = values.to(self.hidden.device)
            if block is None:
                return values.expand(len(self.hidden))
            return values[torch.unique_consecutive(block.visible, return_inverse=True)[1]]

        return self.shared(("share", blend), compute)

    def shares_behind(self, labels: Tensor) -> dict[Blend, LearnedShare]:
        """Return all learned shares as they are once the batch's labels (N,) are known."""
        return {blend: self._shares(blend, labels)[-1] for blend in self.context.shares}

    def _shares(self, blend: Blend, labels: Tensor | None) -> list[LearnedShare]:
        """Return a share before the batch and behind each interval of its first rows, with these labels (n,)."""
        if blend not in self.context.shares:
            raise ValueError(f"the share of {blend} is learned; tell its context so with learn_shares first")
        shares = [self.context.shares[blend]]
        if labels is not None and len(labels):
            ends = [len(labels)]
            if self.block is not None:
                ends = [
                    end for end in sorted(set(self.block.visible.tolist())) if 0 < end < len(labels)
                ] + ends
            evidence = self._evidence(blend, labels)
            for start, end in zip([0, *ends], ends, strict=False):
                shares.append(shares[-1].after(evidence[start:end]))
        return shares

    def _evidence(self, blend: Blend, labels: Tensor) -> list[float]:
        """Return the nats by which a blend's first part predicted each of the first labels (n,) better."""
        targets = labels if self.block is None else self.block.labels
        known = targets < len(self.head.weight)  # a new word has no row yet
        if not known.all():
            targets = torch.where(known, targets, 0)
        first, second = self.parts(blend, targets)
        return torch.where(known, (second - first).double(), torch.nan)[: len(labels)].tolist()

    def parts(self, blend: Blend, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) of ``targets`` (N,) under both parts of a blend, computed once; nats."""
        return self.scored(("parts", blend), targets, lambda: blend.parts(self, targets))

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


class Context:
    """The state that predictions are made from; it changes only by :meth:`learn`, :meth:`set_head`, :meth:`reset`.

    Args:
        head: the base's softmax layer, (V, D).
        memory: retrieved from and written to.
        k: neighbours a query.
        train_counts: (V,) int64 occurrences of each class in training; 0 marks a new class.
        new_classes: (V,) bool classes outside the pre-training vocabulary, None if there are none.
        window: number of most recent pairs kept for caches; 0 for none.
        fixed: whether the head stays as it is, so that the log-normalisers of keys can be kept and used.

    Raises:
        UserError: k below 1.
    """

    def __init__(
        self,
        head: OutputHead,
        memory: AnyMemory,
        *,
        k: int,
        train_counts: Tensor,
        new_classes: Tensor | None = None,
        window: int = 0,
        fixed: bool = False,
    ) -> None:
        if k < 1:
            raise UserError(f"k = {k} must be at least 1 neighbour")
        self.head = head
        self.memory = memory
        self.k = k
        self.train_counts = train_counts
        self.new_classes = new_classes
        self.window = window
        self.fixed = fixed
        self.shares: dict[Blend, LearnedShare] = {}
        self._start()

    def _start(self) -> None:
        self.shares = dict.fromkeys(self.shares, LearnedShare())
        self.observed = torch.zeros_like(self.train_counts)
        self.recent = Window(self.window, self.head.weight)

    def batch(self, hidden: Tensor, block: Block | None = None, ranked: Ranked | None = None) -> EvalBatch:
        """Return the shared quantities of ``hidden`` (N, D); the arguments are those of :class:`EvalBatch`."""
        return EvalBatch(hidden, self, block, ranked)

    def learn_shares(self, rules: Iterable[Rule]) -> None:
        """Learn from now on the shares that rules ask for; those that are learned already go on."""
        for rule in rules:
            for blend in rule.needs.shares:
                self.shares.setdefault(blend, LearnedShare())

    def observe(self, hidden: Tensor, targets: Tensor, *, write: bool = True) -> None:
        """Take scored pairs (N, D), (N,) that were predicted alone; see :meth:`learn`."""
        self.learn(EvalBatch(hidden, self), targets, write=write)

    def learn(self, batch: EvalBatch, targets: Tensor, *, write: bool = True) -> None:
        """Take a batch whose labels (N,) are scored into shares, counts, window and, unless ``write`` is False, memory.

        Labels of words that the batch's head has no row for say nothing of a share.
        """
        self.shares = batch.shares_behind(targets)
        if write and self.fixed:
            self.memory.add(batch.queries, targets, batch.key_normalizers)
        elif write:
            self.memory.add(batch.queries, targets)
        self.observed += torch.bincount(targets, minlength=len(self.observed))
        self.recent.append(batch.hidden, targets)

    def recall(self, observed: Tensor, keys: Tensor, labels: Tensor) -> None:
        """Take over what an earlier context had observed, its memory apart: counts (V,), latest pairs (W, D), (W,)."""
        self.observed = observed.clone()
        self.recent.append(keys, labels)

    @property
    def known_shares(self) -> dict[str, tuple[float, float]]:
        """What was learned of each share, by what it mixes, as :meth:`recall_shares` takes it over."""
        return {repr(blend): (share.owned, share.tokens) for blend, share in self.shares.items()}

    def recall_shares(self, known: Mapping[str, tuple[float, float]]) -> None:
        """Take over what an earlier context knew of the shares that are learned here too."""
        self.shares = {
            blend: LearnedShare(*known.get(repr(blend), (share.owned, share.tokens)))
            for blend, share in self.shares.items()
        }

    def set_head(self, head: OutputHead) -> None:
        """Take over a head that learned or grew; counts grow with it, new rows being new classes."""
        grown = head.weight.shape[0] - self.train_counts.shape[0]
        if grown and self.fixed:
            raise ValueError(f"a fixed head was given {grown} more rows; its context must not be fixed")
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

    def reset(self) -> None:
        """Forget everything observed; the head stays as it was set last."""
        self.memory.reset()
        self._start()
