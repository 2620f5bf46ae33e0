"""A mini-batch of queries and the quantities computed from it, each at most once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.block import STEP, Block, WindowView, learning_places, narrowed, view_of
from hebblm.adapt.context import Context, Observation
from hebblm.adapt.functional.grouping import group_ids
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.adapt.functional.rows import RowStats, row_stats
from hebblm.adapt.requirements import Learned, Learner
from hebblm.adapt.solvers.problem import key_products
from hebblm.adapt.work import Stopwatch, Work, clock_of, name_of
from hebblm.errors import UserError
from hebblm.memory.causal import WrittenBlock
from hebblm.memory.found import Found
from hebblm.memory.nearest import Ranked
from hebblm.memory.ngram_rows import Ints, NGramRows
from hebblm.types import Neighbors

T = TypeVar("T")
L = TypeVar("L", bound=Learned)
SEARCH = "neighbors"
"""Name of the work that finds the neighbours."""


class EvalBatch:
    """The hidden states of a mini-batch and the quantities computed from them, each at most once.

    ``stopwatch`` times each shared piece of work and notes which work uses it, except for the
    base's logits.

    Args:
        hidden: (N, D) queries; if the memory has keys of another layer, each row continues with its
            key (N, D + D_key).
        context: head, memory and counts as they are before the batch is observed.
        block: the rows of the stream that the queries are, if later ones come after earlier ones
            were observed; None if all come before anything is observed.
        ranked: (N, K) positions of the neighbours, if known.
        contexts: (N, order) int64 tokens before each label, the nearest first, for n-grams of
            queries that do not follow the observed text; these do not count each other.
    """

    def __init__(
        self,
        hidden: Tensor,
        context: Context,
        block: Block | None = None,
        ranked: Ranked | None = None,
        contexts: Ints | None = None,
    ) -> None:
        width = context.head.weight.shape[1]
        self.keyed = hidden.shape[1] > width
        self.given = hidden
        self.hidden = hidden[:, :width] if self.keyed else hidden
        self.queries = context.memory.keys_of(hidden[:, width:] if self.keyed else hidden)
        self.context = context
        self.block = block
        self.ranked = ranked
        self.contexts = contexts
        self.head = context.head
        self.stopwatch = Stopwatch(clock_of(hidden.device))
        self._shared: dict[Hashable, tuple[Work, object]] = {}

    @cached_property
    def logits(self) -> Tensor:
        """(N, V) of the base."""
        return self.head.logits(self.hidden)

    @property
    def log_probs(self) -> Tensor:
        """(N, V) of the base, nats."""
        return self.shared("log-probabilities", lambda: self.logits.log_softmax(1))

    @cached_property
    def no_targets(self) -> Tensor:
        """(N,) zeros, in place of labels for quantities that do not depend on them."""
        return torch.zeros(len(self.hidden), dtype=torch.int64, device=self.hidden.device)

    @classmethod
    def after(
        cls, rows: Sequence[Sequence[int]], hidden: Tensor, context: Context, past: Sequence[int]
    ) -> EvalBatch:
        """Return the queries (R, D) after R rows of tokens that all follow the tokens ``past``."""
        ngrams = context.ngrams
        known = (
            None
            if ngrams is None
            else np.stack([ngrams.context_after([*past, *row]) for row in rows])
        )
        return cls(hidden, context, contexts=known)

    @cached_property
    def log_normalizers(self) -> Tensor:
        """(N,) logsumexp of the base's logits, nats."""
        return self.row_stats.normalizer

    @cached_property
    def row_stats(self) -> RowStats:
        """Normaliser, entropy and most probable class of the base's logits."""
        return row_stats(self.logits)

    @cached_property
    def key_normalizers(self) -> Tensor | None:
        """(N,) logsumexp of the base's logits of the keys as the memory stores them; None if the
        head moves.
        """
        if not self.context.fixed:
            return None
        dtype = self.context.memory.dtype
        if torch.finfo(dtype).bits >= torch.finfo(self.hidden.dtype).bits:
            return self.log_normalizers
        memory = self.context.memory
        return log_normalizers(
            memory.states_of(self.queries.to(dtype).to(self.hidden.dtype)), self.head
        )

    def base_losses(self, targets: Tensor) -> Tensor:
        """Return the base's loss (N,) in nats of ``targets`` (N,)."""
        return self.log_normalizers - self.logits.gather(1, targets[:, None]).squeeze(1)

    @property
    def searched(self) -> Found:
        """The K nearest entries of each query, among those written before it; their keys stay in
        the memory.
        """
        return self.shared(SEARCH, self._search)

    @property
    def neighbors(self) -> Neighbors:
        """The same entries with keys as the memory stores them."""
        return self.shared("keys", lambda: self.searched.neighbors(self.queries.dtype))

    @property
    def near_states(self) -> Neighbors:
        """The same neighbours with states as keys: the input of the head."""
        near, memory = self.neighbors, self.context.memory
        return (
            self.shared("states", lambda: replace(near, keys=memory.states_of(near.keys)))
            if memory.signed_sqrt
            else near
        )

    def positions(self) -> Ranked:
        """Positions (N, K) of the neighbours, counted through the memory and then the block's
        rows.
        """
        if self.ranked is not None:
            return self.ranked
        if self.written is not None:
            return self.written.nearest(self.context.k)
        return self.context.memory.nearest(self.queries, self.context.k)

    def _search(self) -> Found:
        written = self.written
        if written is None:
            searched = self.context.memory.find(self.queries, self.context.k)
        elif self.ranked is None:
            searched = written.find(self.context.k)
        else:
            searched = written.entries_at(self.ranked)
        # the stored ones are stale
        return searched if self.context.fixed else searched.without_normalizers()

    @cached_property
    def written(self) -> WrittenBlock | None:
        """The block with the memory that it is written to; None if the memory alone answers."""
        block = self.block
        if block is None or (self.ranked is None and not (block.written and block.causal)):
            return None
        return WrittenBlock(
            self.context.memory, self.queries, block.labels, block.in_memory, self.key_normalizers
        )

    def check_keys(self, method: str) -> None:
        """Refuse a method that adapts the head if the neighbours' keys come from another layer."""
        if self.keyed:
            raise UserError(
                f"{method} adapts the output layer and needs its input as keys; use key=last, "
                "knn or mixture"
            )

    def window(self, size: int) -> WindowView:
        """Return the view that the queries have of the ``size`` latest pairs of the stream."""
        windows = [state.recent for state in self.context.stream_states]
        longest = windows[0].size
        several = self.block is not None and self.block.streams is not None

        def compute() -> WindowView:
            if size < longest and not several:  # a part of the longest one's products
                return narrowed(self.window(longest), size, self.block)
            keys = self.context.memory.keys_of(self.hidden) if self.keyed else self.queries
            return view_of(windows, keys, size, self.block)

        return self.shared(("window", size), compute)

    @property
    def products(self) -> Tensor:
        """(N, K) ``k_k . k``, of keys as the memory stores them."""
        return self.shared("products", lambda: self.searched.products(self.queries))

    @property
    def state_products(self) -> Tensor:
        """(N, K) ``h_k . h``."""
        if not self.context.memory.signed_sqrt:
            return self.products
        return self.shared(
            "state products", lambda: key_products(self.hidden, self.near_states.keys)
        )

    @property
    def groups(self) -> Tensor:
        """(N, K) int64 numbers of the neighbours' labels, equal for equal labels."""
        return self.shared("groups", lambda: group_ids(self.searched.values))

    def ngram_rows(self) -> NGramRows:
        """Return rows for an n-gram: each sees the rows of its stream before it, if their labels
        are known.
        """
        count, block = len(self.hidden), self.block
        nothing = np.zeros(count, dtype=np.int64)
        if self.contexts is not None:
            return NGramRows(self.contexts, nothing, nothing, nothing)
        if block is None:
            contexts = self.context.ngram_contexts(nothing, None)[:1].repeat(count, 0)
            return NGramRows(contexts, nothing, nothing, nothing)
        labels, streams = block.labels.cpu().numpy(), nothing
        if block.streams is not None:
            streams = block.streams.cpu().numpy()
        return NGramRows(
            self.context.ngram_contexts(labels, block), labels, streams, np.arange(count)
        )

    def learned_share(self, learner: Learner[Any]) -> Tensor:
        """Return a learner's share (N,), or shares (N, C), float64, as learned before each
        query.
        """

        def compute() -> Tensor:
            mixture_weights, rows = self.learned(learner)
            values = [share.value for share in mixture_weights]
            return torch.tensor(values, dtype=torch.float64, device=self.hidden.device)[rows]

        return self.shared(("share", learner), compute)

    def learned(self, learner: Learner[L]) -> tuple[list[L], Tensor]:
        """Return the shares learned before the queries, and the number (N,) int64 of the one that
        holds for each.
        """

        def compute() -> tuple[list[L], Tensor]:
            block = self.block
            index = torch.zeros(len(self.hidden), dtype=torch.int64, device=self.hidden.device)
            if block is None:
                return self._learned(learner, 0, [0], index.new_zeros(0)), index
            evidence = self._evidence(learner, block.labels)
            mixture_weights: list[L] = []
            for stream, rows, part in block.by_stream():
                places = _places(part)
                steps = torch.tensor(places, device=index.device)
                numbered = torch.arange(len(part.labels), device=index.device)
                index[rows] = (
                    len(mixture_weights) + torch.searchsorted(steps, numbered, right=True) - 1
                )
                mixture_weights += self._learned(learner, stream, places, evidence[rows])
            return mixture_weights, index

        return self.shared(("learned", learner), compute)

    def observation(self, targets: Tensor) -> Observation:
        """Return the observation to learn from, after the batch's labels (N,) are scored."""
        mixture_weights = self.shares_after(targets)
        return Observation(
            self.hidden, self.queries, targets, self.block, self.key_normalizers, mixture_weights
        )

    def shares_after(self, targets: Tensor) -> dict[int, dict[Learner[Any], Learned]]:
        """Return the shares of each stream after the batch's labels (N,) are scored."""
        block, count = self.block, len(targets)
        alone = Block(targets, torch.zeros_like(targets), 0, written=False)
        streams = [(0, slice(None), alone)] if block is None else list(block.by_stream())
        evidence = (
            {learner: self._evidence(learner, targets) for learner in self.context.learners}
            if count
            else {}
        )
        return {
            stream: {
                learner: self._learned(learner, stream, places, said[rows])[-1].after(
                    said[rows][places[-1] :].tolist()
                )
                for learner, said in evidence.items()
            }
            for stream, rows, part in streams
            for places in [_places(part)]
        }

    def shares_along(self, targets: Tensor) -> list[dict[Learner[Any], Learned]]:
        """Return the first stream's shares after every ten of the batch's labels (N,), and after
        the last.
        """
        places = [*range(0, len(targets), STEP)]
        along: list[dict[Learner[Any], Learned]] = [{} for _ in places]
        for learner in self.context.learners:
            evidence = self._evidence(learner, targets)
            shares = self._learned(learner, 0, places, evidence)
            last = shares[-1].after(evidence[places[-1] :].tolist())
            for number, share in enumerate([*shares[1:], last]):
                along[number][learner] = share
        return along

    def _learned(
        self, learner: Learner[L], stream: int, places: list[int], evidence: Tensor
    ) -> list[L]:
        """Return a stream's shares: before the batch, and after the rows before each further
        place.
        """

        def compute() -> list[L]:
            if learner not in self.context.learners:
                raise ValueError(
                    f"the share of {learner} is learned; call learn_shares of its context first"
                )
            mixture_weights, said = (
                [cast(L, self.context.stream_states[stream].mixture_weights[learner])],
                evidence.tolist(),
            )
            for start, end in pairwise(places):
                mixture_weights.append(mixture_weights[-1].after(said[start:end]))
            return mixture_weights

        return self.shared(("learned", learner, stream, len(places)), compute)

    def _evidence(self, learner: Learner[Any], labels: Tensor) -> Tensor:
        """Return the evidence of the first labels (n,) for a learner's shares, (N,) or (N, E)
        float64.

        The labels of the other rows must not be read yet, and their evidence is unspecified. A new
        word has no row in the head yet, and its evidence is nan.
        """
        if not len(labels):
            return self.hidden.new_empty(len(self.hidden), dtype=torch.float64)
        targets = labels if self.block is None else self.block.labels
        known = targets < len(self.head.weight)
        if not known.all():
            targets = torch.where(known, targets, 0)
        evidence = learner.evidence(self, targets)
        evidence[~known] = torch.nan
        return evidence

    def scored(self, predictor: Hashable, targets: Tensor, compute: Callable[[], T]) -> T:
        """Return ``compute()``, losses of ``targets`` (N,) under a rule, computed once for all that
        build on it.
        """
        # With the labels in the value they stay alive, so that no other tensor takes over their
        # identity.
        key = (predictor, "losses", id(targets))
        return self.shared(key, lambda: (targets, compute()))[1]

    def shared(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, computed once for all rules with an equal ``key``."""
        if key not in self._shared:
            with self.stopwatch.time(name_of(key)) as work:
                value = compute()
            self._shared[key] = work, value
        work, known = self._shared[key]
        self.stopwatch.use(work)
        return cast(T, known)


def _places(block: Block) -> list[int]:
    """Return the rows of one stream's block at which its shares learn, from 0 on."""
    return learning_places(sorted(set(block.visible.tolist())), len(block.labels))
