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
from hebblm.io.groups import prefixed, under
from hebblm.memory.base import AnyMemory
from hebblm.memory.ngram_rows import PAD, Ints, contexts_of
from hebblm.memory.ngrams import Array, NGrams
from hebblm.types import OutputHead

# before the names of mixture weights in a saved state
WEIGHTS = "weights: "  # as the text that is being read made them
LEARNED = "learned weights: "  # as before that text, where it is not learned


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

    def load_ngrams(self, known: Mapping[str, Array]) -> None:
        """Load earlier counts as the base of all counts, if there are any and this context counts
        n-grams.
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

    def state_dict(self) -> dict[str, Tensor]:
        """Return all observations except the memory's entries and the counts of n-grams.

        Mixture weights stand under the names of what learns them.
        """
        state = {"observed": self.observed}
        for number, stream in enumerate(self.stream_states):
            kept = {
                **stream.recent.state_dict(),
                "history": torch.from_numpy(stream.history.copy()),
                **self._as_tensors(WEIGHTS, stream.mixture_weights),
            }
            if stream.learned is not None:
                kept |= self._as_tensors(LEARNED, stream.learned)
            state |= prefixed(f"{number} ", kept)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> list[str]:
        """Go on after :meth:`state_dict`; call it after the head is set.

        A context of the same predictors goes on to the bit. One of others takes what it uses too.

        Returns:
            Names of saved mixture weights that do not fit here: nothing learns them, or they have
            another number of values.
        """
        self.observed = state["observed"].clone()
        unused: dict[str, None] = {}
        for number, stream in enumerate(self.stream_states):
            kept = under(f"{number} ", state)
            stream.recent.load_state_dict(kept)
            if len(kept["history"]) == len(stream.history):
                stream.history = kept["history"].cpu().numpy()
            saved = under(WEIGHTS, kept)
            stream.mixture_weights = self._from_tensors(saved)
            if learned := under(LEARNED, kept):
                stream.learned = self._from_tensors(learned)
            fitting = self._as_tensors("", stream.mixture_weights)
            for name, numbers in saved.items():
                if name not in fitting or len(numbers) != len(fitting[name]):
                    unused[name] = None
        return list(unused)

    def _names(self) -> dict[str, Learner[Any]]:
        """Name the learners of mixture weights; a second of one name has its number in the order of
        the predictors.
        """
        names: dict[str, Learner[Any]] = {}
        for learner in self.learners:
            name = learner.learned_as
            number = 2
            while name in names:
                name = f"{learner.learned_as}, {number}"
                number += 1
            names[name] = learner
        return names

    def _as_tensors(
        self, prefix: str, mixture_weights: Mapping[Learner[Any], Learned]
    ) -> dict[str, Tensor]:
        return {
            f"{prefix}{name}": torch.tensor(mixture_weights[learner].as_floats, dtype=torch.float64)
            for name, learner in self._names().items()
        }

    def _from_tensors(self, saved: Mapping[str, Tensor]) -> dict[Learner[Any], Learned]:
        """Return mixture weights as they were saved, and initial ones where none fit."""
        mixture_weights: dict[Learner[Any], Learned] = {}
        for name, learner in self._names().items():
            numbers = saved[name].tolist() if name in saved else []
            mixture_weights[learner] = learner.initial
            if len(numbers) == len(learner.initial.as_floats):
                mixture_weights[learner] = learner.initial.from_floats(numbers)
        return mixture_weights

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
