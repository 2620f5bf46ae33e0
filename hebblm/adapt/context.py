"""State that the rules of one run predict from: head, memory, counts, and a state for each
stream.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt import checks
from hebblm.adapt.block import Block, Window
from hebblm.adapt.functional.gating import LearnedGate
from hebblm.adapt.requirements import HasRequirements, Learned, Learner
from hebblm.errors import UserError
from hebblm.memory.base import AnyMemory
from hebblm.memory.ngram_rows import PAD, Ints, contexts_of
from hebblm.memory.ngrams import Array, NGrams
from hebblm.types import OutputHead

HERE = ", here"  # after the name of a share: what it is at this place of a text that is not learned


@dataclass(frozen=True, slots=True)
class Observation:
    """Scored mini-batch to learn from."""

    hidden: Tensor  # (N, D)
    queries: Tensor  # (N, D_key)
    labels: Tensor  # (N,) int64
    block: Block | None  # gives the stream of each row
    # (N,) nats, of the keys as the memory stores them; None if the head moves
    key_normalizers: Tensor | None
    mixture_weights: dict[int, dict[Learner[Any], Learned]]  # by stream, after the batch


@dataclass(slots=True)
class StreamState:
    """State of one stream: its latest pairs, its last tokens, and the shares learned from it."""

    recent: Window
    history: Ints  # (order,) tokens that were observed last, the nearest first
    mixture_weights: dict[Learner[Any], Learned] = field(default_factory=dict)
    # while shares follow a text that is not learned: those before
    learned: dict[Learner[Any], Learned] | None = None

    def restore_learned_weights(self) -> None:
        """Go back to the shares before a text that was not learned."""
        if self.learned is not None:
            self.mixture_weights, self.learned = self.learned, None


class Context:
    """The state that predictions are made from; it learns only by :meth:`take`.

    Args:
        head: the base's softmax layer, (V, D).
        memory: memory to search and to write to.
        k: neighbours of each query.
        train_counts: (V,) int64 occurrences of each class in training; 0 marks a new class.
        new_classes: (V,) bool classes outside the pre-training vocabulary, None if there are none.
        window: number of most recent pairs kept for caches; 0 for none.
        fixed: whether the head stays as it is, so that the log-normalisers of keys can be kept and
            used.
        streams: number of streams read side by side; each has its own window and shares.
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
        streams: int = 1,
    ) -> None:
        if k < 1:
            raise UserError(f"k = {k} is too few neighbours; choose at least 1")
        checks.precise(head.weight)
        self.head = head
        self.memory = memory
        self.k = k
        self.train_counts = train_counts
        self.new_classes = new_classes
        self.window = window
        self.fixed = fixed
        self.streams = streams
        self.ngrams: NGrams | None = None  # counts of the exact words, once a rule needs them
        self.learners: tuple[Learner[Any], ...] = ()
        self._start()

    def _start(self) -> None:
        self.observed = torch.zeros_like(self.train_counts)
        self.stream_states = [
            StreamState(
                Window(self.window, self.head.weight),
                np.full(0 if self.ngrams is None else self.ngrams.order, PAD),
                {learner: learner.initial for learner in self.learners},
            )
            for _ in range(self.streams)
        ]

    @property
    def recent(self) -> Window:
        """The latest pairs of the first stream."""
        return self.stream_states[0].recent

    @property
    def mixture_weights(self) -> dict[Learner[Any], Learned]:
        """The shares learned from the first stream."""
        return self.stream_states[0].mixture_weights

    @mixture_weights.setter
    def mixture_weights(self, mixture_weights: dict[Learner[Any], Learned]) -> None:
        self.stream_states[0].mixture_weights = mixture_weights

    def learn_mixture_weights(self, predictors: Iterable[HasRequirements]) -> None:
        """From now on learn the shares that rules need, and count n-grams; shares learned before go
        on.
        """
        for predictor in predictors:
            if predictor.requirements.ngrams is not None and self.ngrams is None:
                self.ngrams = NGrams(*predictor.requirements.ngrams)
                for state in self.stream_states:
                    state.history = np.full(self.ngrams.order, PAD)
            self.learners = tuple(
                dict.fromkeys((*self.learners, *predictor.requirements.mixture_weights))
            )
        for state in self.stream_states:
            known = state.mixture_weights
            state.mixture_weights = {
                learner: known.get(learner, learner.initial) for learner in self.learners
            }

    def observe(self, observation: Observation, *, write: bool = True) -> None:
        """Take an observation into counts, windows and shares of its streams and, with ``write``,
        into the memory.
        """
        labels = observation.labels
        if write:
            self.memory.add(observation.queries, labels, observation.key_normalizers)
        self.observed += torch.bincount(labels, minlength=len(self.observed))
        streams: list[tuple[int, Tensor | slice]] = [(0, slice(None))]
        if observation.block is not None:
            streams = [(stream, rows) for stream, rows, _ in observation.block.by_stream()]
        states = self.memory.keys_of(observation.hidden)
        for stream, rows in streams:
            self.stream_states[stream].mixture_weights = observation.mixture_weights[stream]
            self.stream_states[stream].recent.append(states[rows], labels[rows])

    def count_ngrams(self, observation: Observation) -> None:
        """Count the n-grams of an observation, if any are."""
        if self.ngrams is not None:
            self.ngrams.add(*self.pass_on(observation))

    def pass_on(self, observation: Observation) -> tuple[Ints, Ints]:
        """Move n-grams on after an observation; return its contexts (N, order) and labels (N,), not
        counted yet.
        """
        return self.pass_labels(observation.labels, observation.block)

    def pass_labels(self, targets: Tensor, block: Block | None = None) -> tuple[Ints, Ints]:
        """Move n-grams on after labels (N,); return their contexts (N, order) and the labels."""
        labels = targets.cpu().numpy()
        contexts = self.ngram_contexts(labels, block)
        for stream, rows in _rows_by_stream(block):
            if len(read := labels[rows]):
                self.stream_states[stream].history = np.r_[read[-1], contexts[rows][-1]][:-1]
        return contexts, labels

    def ngram_contexts(self, labels: Ints, block: Block | None) -> Ints:
        """Return contexts (N, order) of rows with labels (N,), nearest token first: rows before,
        then the past.
        """
        if self.ngrams is None:
            raise ValueError("n-grams need a context that counts them; call its learn_shares first")
        contexts = np.empty((len(labels), self.ngrams.order), dtype=np.int64)
        for stream, rows in _rows_by_stream(block):
            past = self.stream_states[stream].history
            contexts[rows] = contexts_of(
                np.r_[past[::-1], labels[rows]], len(past), self.ngrams.order
            )
        return contexts

    @contextmanager
    def as_streams(self, streams: int) -> Iterator[None]:
        """Split into several streams in the block, each a copy of the first; then go on as the last
        of them.
        """
        first = self.stream_states[0]
        self.stream_states = [
            StreamState(copy.deepcopy(first.recent), first.history, dict(first.mixture_weights))
            for _ in range(streams)
        ]
        try:
            yield
        finally:
            self.stream_states = self.stream_states[-1:]

    def begin(self, *firsts: Sequence[int]) -> None:
        """Move each stream's n-grams to the end of some tokens; without tokens, to the beginning of
        a text.

        There a gate is trusted as far as it helped at the beginnings of earlier texts, if anything
        was read.
        """
        if not firsts:
            for state in self.stream_states:
                state.restore_learned_weights()
        if not firsts and self.observed.any():
            for state in self.stream_states:
                state.mixture_weights = {
                    learner: share.at_text_start if isinstance(share, LearnedGate) else share
                    for learner, share in state.mixture_weights.items()
                }
        if self.ngrams is not None:
            for state, tokens in zip(
                self.stream_states, firsts or [()] * len(self.stream_states), strict=True
            ):
                state.history = self.ngrams.context_after(tokens)

    def update_weights(self, mixture_weights: Mapping[int, dict[Learner[Any], Learned]]) -> None:
        """Take over shares by stream after a text that is not learned; they hold until the streams
        settle.
        """
        for stream, learned in mixture_weights.items():
            state = self.stream_states[stream]
            state.mixture_weights, state.learned = (
                learned,
                state.mixture_weights if state.learned is None else state.learned,
            )

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """Forget in the end what shares and n-grams followed in the block."""
        before = self.stream_states
        self.stream_states = [copy.copy(state) for state in before]
        try:
            yield
        finally:
            self.stream_states = before

    def restore_learned_weights(self) -> None:
        """Go back to the shares that were learned, after texts that were not."""
        for state in self.stream_states:
            state.restore_learned_weights()

    def observe_ranks(self, labels: Sequence[Tensor], rank: int, *, write: bool = True) -> None:
        """Count the labels (M,) of the other processes, after ``rank``, this one, has taken its
        own.
        """
        for process, observed in enumerate(labels):
            if process != rank:
                self.observed += torch.bincount(observed, minlength=len(self.observed))
        if write:
            self.memory.observe_ranks(labels)

    def recall(self, observed: Tensor, keys: Tensor, labels: Tensor) -> None:
        """Load an earlier context's observations except its memory: counts (V,), latest pairs (W,
        D), (W,).
        """
        self.observed = observed.clone()
        self.recent.append(keys, labels)

    @property
    def saved_mixture_weights(self) -> dict[str, tuple[float, ...]]:
        """Every mixture weight by name, for :meth:`load_mixture_weights`: as learned, and as this
        text made it.
        """
        learned = self.stream_states[0].learned
        current = {
            learner.learned_as: share.as_floats for learner, share in self.mixture_weights.items()
        }
        if learned is None:
            return current
        kept = {learner.learned_as: share.as_floats for learner, share in learned.items()}
        return {**kept, **{f"{name}{HERE}": numbers for name, numbers in current.items()}}

    def load_mixture_weights(self, known: Mapping[str, tuple[float, ...]]) -> list[str]:
        """Load an earlier context's shares, as far as they are learned here too.

        Returns the names of those that do not fit: they are not learned here, or have another
        number of values.
        """
        unused = {name: numbers for name, numbers in known.items() if not name.endswith(HERE)}
        current: dict[Learner[Any], Learned] = {}
        for learner, share in self.mixture_weights.items():
            numbers = known.get(learner.learned_as, ())
            if len(numbers) == len(share.as_floats):
                self.mixture_weights[learner] = share.from_floats(numbers)
                current[learner] = share.from_floats(
                    known.get(f"{learner.learned_as}{HERE}", numbers)
                )
                del unused[learner.learned_as]
        if any(name.endswith(HERE) for name in known):
            self.update_weights({0: {**self.mixture_weights, **current}})
        return list(unused)

    @property
    def known_ngrams(self) -> dict[str, Array]:
        """Counts of n-grams and the last tokens of the first stream, for :meth:`recall_ngrams`."""
        if self.ngrams is None:
            return {}
        return {**self.ngrams.state_dict(), "history": self.stream_states[0].history}

    def recall_ngrams(self, known: Mapping[str, Array]) -> None:
        """Load earlier counts as the base of all counts, if there are any and this context counts
        n-grams.

        Counts saved without a history go on at the beginning of a text.
        """
        if self.ngrams is not None and known:
            order = int(known["tokens"][1])
            if order != self.ngrams.order:
                raise UserError(
                    f"ngram.order = {self.ngrams.order}, but the saved counts have order {order}; "
                    "leave it out"
                )
            self.ngrams.load_state_dict(known)
            self.ngrams.mark_base()
            if "history" in known:
                self.stream_states[0].history = known["history"].astype(np.int64)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all observations except the memory."""
        state = {"observed": self.observed}
        for number, stream in enumerate(self.stream_states):
            numbers = [stream.mixture_weights[learner].as_floats for learner in self.learners]
            mixture_weights = {
                f"share {index}": torch.tensor(one, dtype=torch.float64)
                for index, one in enumerate(numbers)
            }
            kept = {
                **stream.recent.state_dict(),
                **mixture_weights,
                "history": torch.from_numpy(stream.history.copy()),
            }
            state |= {f"{number} {name}": tensor for name, tensor in kept.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on, to the bit, after :meth:`state_dict`; call it with the same shares learned and the
        head set.
        """
        self.observed = state["observed"]
        for number, stream in enumerate(self.stream_states):
            kept = {
                name.partition(" ")[2]: value
                for name, value in state.items()
                if name.startswith(f"{number} ")
            }
            stream.recent.load_state_dict(kept)
            stream.history = kept["history"].cpu().numpy()
            stream.mixture_weights = {
                learner: learner.initial.from_floats(kept[f"share {index}"].tolist())
                for index, learner in enumerate(self.learners)
            }

    def set_head(self, head: OutputHead) -> None:
        """Take a head that learned or grew; counts grow with it, and new rows are new classes."""
        grown = head.weight.shape[0] - self.train_counts.shape[0]
        if grown and self.fixed:
            raise ValueError(
                f"a fixed head was given {grown} more rows; its context must not be fixed"
            )
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
        """Forget all observations; the head stays as it was set last."""
        self.memory.reset()
        if self.ngrams is not None:
            self.ngrams.reset()
        self._start()


def _rows_by_stream(block: Block | None) -> list[tuple[int, slice | Ints]]:
    if block is None or block.streams is None:
        return [(0, slice(None))]
    return [(stream, np.asarray(rows)) for stream, rows, _ in block.by_stream()]
