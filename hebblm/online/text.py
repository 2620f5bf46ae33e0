"""Text for a session: a base that reads it, and the mini-batches of its streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.predictor import Predictor
from hebblm.memory.nearest import Ranked
from hebblm.models.base import Base, State
from hebblm.online.layout import Layout
from hebblm.online.session import Unit
from hebblm.online.vocabulary import VocabularyPolicy
from hebblm.types import OutputHead


class TextSource:
    """A base that reads text, and the words that it has no row for.

    Args:
        base: reads, and learns if it trains online.
        vocabulary: policy for words without a row.
    """

    def __init__(self, base: Base, vocabulary: VocabularyPolicy) -> None:
        self.base, self.vocabulary = base, vocabulary

    @property
    def head(self) -> OutputHead:
        return self.base.head

    def readable(self, ids: Tensor) -> Tensor:
        """Return ids (N,) as the base can read them now."""
        return self.vocabulary.readable(ids, len(self.head.weight))

    def read(self, inputs: Tensor) -> Tensor:
        """Return hidden states (N, D) after tokens (N,), or (B, N, D) after (B, N)."""
        return self.base.read(self.readable(inputs))

    def losses(self, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> Tensor:
        """Return the loss (N,) in nats of labels (N,) under a predictor."""
        return self.vocabulary.losses(predictor, batch, labels)

    def learn(self, labels: Tensor) -> None:
        """Train the base on labels (N,); words seen for the first time get rows."""
        with torch.enable_grad():
            self.base.learn(self.readable(labels))
        if new := self.vocabulary.new_rows(labels, len(self.head.weight)):
            self.base.grow(new)

    def state_dict(self) -> State:
        return self.base.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.base.load_state_dict(state)


class PrecomputedStates(Protocol):
    """States and neighbours of a stream that were computed before."""

    def states(self, begin: int, end: int) -> Tensor:
        """Return hidden states (n, D) of a run of tokens."""

    def ranked(self, begin: int, end: int) -> Ranked:
        """Return distances and positions (n, K) of the neighbours of a run of tokens."""


@dataclass(frozen=True, slots=True)
class TextStreams:
    """The streams of a text, as a session reads them.

    Args:
        layout: where each stream lies in the text.
        inputs: (T,) ids that the base reads.
        labels: (T,) ids that follow them.
        update_every: tokens of a stream between two updates.
        write: whether observed pairs go to the memory.
        precomputed: states and neighbours of a single stream; then nothing is read or searched.
    """

    layout: Layout
    inputs: Tensor
    labels: Tensor
    update_every: int
    write: bool = True
    precomputed: PrecomputedStates | None = None

    def read(self, source: TextSource, begin: int, end: int) -> Tensor:
        """Return hidden states (B, n, D) after the tokens of all streams between two places."""
        if self.precomputed is None:
            states = source.read(self.layout.cut(self.inputs, begin, end))
        else:
            states = self.precomputed.states(begin, end)
        return states if self.layout.streams > 1 else states[None]

    def units(
        self, contexts: Sequence[Context], states: Tensor, begin: int, start: int, stop: int
    ) -> Iterator[Unit]:
        """Yield the units of the tokens between two places, predicted from what came before them.

        Args:
            contexts: one for each stream that has a memory of its own, or a single one.
            states: (B, n, D) of the tokens from place ``begin`` on.
            begin: where the states begin.
            start: first place of the units.
            stop: the place after the last one.
        """
        layout = self.layout
        for group in layout.rounds(start, stop, self.update_every):
            if group is None:  # other ranks still search
                yield Unit(EvalBatch(states[0, :0], contexts[0]), self.labels[:0])
                continue
            labels = layout.labels(group, self.labels)  # (N,)
            hidden = layout.states(group, states, begin)  # (N, D)
            block = layout.block(group, labels, self.update_every, written=self.write)
            ranked = None
            if self.precomputed is not None:
                ranked = self.precomputed.ranked(start, stop)
            batch = EvalBatch(hidden, contexts[group.owner], block, ranked)
            yield Unit(batch, labels, layout.places(group))
