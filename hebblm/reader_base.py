"""Base of a reader: the one as trained, or that of dynamic evaluation with the trained one beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.errors import UserError
from hebblm.models.base import GradientBase, State, StreamBase
from hebblm.models.dynamic import DynamicBase
from hebblm.tensors import prefixed, under
from hebblm.types import OutputHead

_TRAINED = "trained "
"""Prefix of the names of the trained base's place where another one moves."""


class ReaderBase:
    """A base, and the same as trained beside it where it moves: both read every text.

    Args:
        base: reads the text.
        trained: reads along where ``base`` learns, None where it does not.
    """

    def __init__(self, base: GradientBase | DynamicBase, trained: StreamBase | None = None) -> None:
        self._base = base
        self._trained = trained
        self._logits = base.head.weight.new_zeros(0, 0)

    @property
    def head(self) -> OutputHead:
        """The softmax layer as it is now."""
        return self._base.head

    @property
    def _both(self) -> list[GradientBase | DynamicBase | StreamBase]:
        return [self._base] if self._trained is None else [self._base, self._trained]

    def read(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (N, D) after each of the tokens (N,), going on from the last call.

        Of a base of several streams, which stays as trained, (B, N, D) after (B, N).
        """
        if self._trained is not None:
            head = self._trained.head
            with torch.no_grad():
                self._logits = head.logits(self._trained.read(inputs)[:, : head.weight.shape[1]])
        return self._base.read(inputs)

    def trained_losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of targets (N,) under the base as trained, of the tokens read last."""
        if self._trained is None:
            return batch.base_losses(targets)
        return -self._logits.log_softmax(1).gather(1, targets[:, None]).squeeze(1)

    def trained_log_probs(self, batch: EvalBatch) -> Tensor:
        """Return log-probabilities (N, V) in nats of the base as trained, behind the last N of the tokens read last."""
        if self._trained is None:
            return batch.log_probs
        return self._logits[-len(batch.hidden) :].log_softmax(1)

    def learn(self, targets: Tensor) -> None:
        """Let the base learn from the labels (N,) of the tokens read last, if it moves."""
        with torch.enable_grad():
            self._base.learn(targets)

    def grow(self, rows: int) -> None:
        """Append rows for words that were observed for the first time."""
        for base in self._both if rows else ():
            base.grow(rows)

    def stream_state(self) -> State:
        """Return where it stands in the stream, weights apart."""
        beside = {} if self._trained is None else self._trained.stream_state()
        return {**self._base.stream_state(), **prefixed(_TRAINED, beside)}

    def load_stream_state(self, state: State) -> None:
        """Go on from such a state, of a base that moves or not; the weights stay as they are."""
        moving = {name: value for name, value in state.items() if not name.startswith(_TRAINED)}
        trained = under(_TRAINED, state)
        for base in self._both:
            base.load_stream_state(moving if base is self._base and self._trained is not None else trained or moving)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let what is read inside be forgotten behind: the stream goes on from where it stood."""
        with ExitStack() as stack:
            for base in self._both:
                stack.enter_context(base.aside())
            yield

    def weights(self) -> dict[str, Tensor]:
        """Return the weights that learn, by name; none where the base stays as trained."""
        return {} if self._trained is None else dict(self._base.parameters())

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Go on with weights that :meth:`weights` gave; a base that stays as trained has no use for them.

        Raises:
            UserError: they are other ones than those that learn.
        """
        own = self.weights()
        if weights and own and weights.keys() != own.keys():
            raise UserError(f"other weights learned there ({', '.join(weights)}); load the model as it was then")
        for name, weight in own.items() if weights else ():
            weight.copy_(weights[name])
