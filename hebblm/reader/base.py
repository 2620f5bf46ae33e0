"""The base of a reader, and for one that learns its copy as trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.errors import UserError
from hebblm.evaluation.training_text import gradient_statistics
from hebblm.io.groups import prefixed, under
from hebblm.models.base import GradientBase, Ids, State, StreamBase, TrainedModel
from hebblm.models.dynamic import RATE, TRAINED, DynamicBase, DynamicConfig
from hebblm.types import OutputHead


class BaseAndTrained:
    """A base and, if it learns, a copy as trained: both read every text.

    Args:
        base: reads the text.
        trained: reads along if ``base`` learns, None if it does not.
    """

    def __init__(self, base: GradientBase | DynamicBase, trained: StreamBase | None = None) -> None:
        self._base = base
        self._trained = trained
        # The rule stream reads the trained base by itself.
        self._moving = base if isinstance(base, DynamicBase) else None
        self._along = (
            trained is not None and self._moving is not None and self._moving.trained is trained
        )
        # (N, V) of the trained base, of the tokens read last
        self._logits = base.head.weight.new_zeros(0, 0)

    @property
    def head(self) -> OutputHead:
        return self._base.head

    @property
    def _both(self) -> list[GradientBase | DynamicBase | StreamBase]:
        return [self._base] if self._trained is None or self._along else [self._base, self._trained]

    def read(self, inputs: Tensor) -> Tensor:
        """Return hidden states (N, D) after each of the tokens (N,), going on from the last call.

        A base of several streams, which stays as trained, gives (B, N, D) after (B, N).
        """
        states = self._base.read(inputs)
        if self._trained is not None:
            head = self._trained.head
            with torch.no_grad():
                if self._moving is not None and self._along:
                    trained = self._moving.trained_states
                else:
                    trained = self._trained.read(inputs)
                self._logits = head.logits(trained[:, : head.weight.shape[1]])
        return states

    def beyond(
        self, shared: Tensor, rows: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return hidden states (1 + N_b, D) before and after each token of continuations (N_b,) of
        some tokens (N,).

        The second list is the trained base's, None if that is the same base. The stream stays where
        it stands.
        """
        longer = [row for row in rows if len(row)]
        words = []
        for base in (self._base, self._trained):
            if base is not None:
                with base.preserve_state():
                    first = base.read(shared)[-1:]
                    after = iter(base.continuations(longer) if longer else ())
                words.append(
                    [torch.cat([first, next(after)]) if len(row) else first for row in rows]
                )
        return words[0], words[1] if len(words) > 1 else None

    def continuations(self, rows: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return states (N_b, D) after each token of continuations (N_b,), and the trained base's
        as :meth:`beyond`.
        """
        return self._base.continuations(
            rows
        ), None if self._trained is None else self._trained.continuations(rows)

    @property
    def max_rewind(self) -> int:
        """Number of tokens that :meth:`back` could still undo at no cost."""
        return min(base.max_rewind for base in self._both)

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` of the tokens read last."""
        for base in self._both:
            base.rewind(count)

    def trained_losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of targets (N,) under the trained base, for the tokens read
        last.
        """
        if self._trained is None:
            return batch.base_losses(targets)
        return -self._logits.log_softmax(1).gather(1, targets[:, None]).squeeze(1)

    def trained_log_probs(self, batch: EvalBatch, states: Tensor | None = None) -> Tensor:
        """Return log-probabilities (N, V) in nats of the trained base, for states (N, D) or the
        last N tokens read.
        """
        if self._trained is None:
            return batch.log_probs
        head = self._trained.head
        logits = (
            self._logits[-len(batch.hidden) :]
            if states is None
            else head.logits(states[:, : head.weight.shape[1]])
        )
        return logits.log_softmax(1)

    def learn(self, targets: Tensor) -> None:
        """Train the base on the labels (N,) of the tokens read last, if it learns."""
        self._base.learn(targets)

    def grow(self, rows: int) -> None:
        """Append rows for new words."""
        for base in self._both if rows else ():
            base.grow(rows)

    def stream_state(self) -> State:
        """Return the state in the stream, without weights."""
        trained_state = {} if self._trained is None or self._along else self._trained.stream_state()
        return {**self._base.stream_state(), **prefixed(TRAINED, trained_state)}

    def load_stream_state(self, state: State) -> None:
        """Go on from such a state, of a base that learns or not; the weights stay as they are."""
        if self._along:
            self._base.load_stream_state(state)
            return
        moving = {name: value for name, value in state.items() if not name.startswith(TRAINED)}
        trained = under(TRAINED, state)
        for base in self._both:
            base.load_stream_state(
                moving if base is self._base and self._trained is not None else trained or moving
            )

    def state_dict(self) -> State:
        """Return the state in the stream and the weights that learned."""
        return {**prefixed("state ", self.stream_state()), **prefixed("weight ", self.weights())}

    def load_state_dict(self, state: State) -> None:
        """Go on from :meth:`state_dict`; call this only just after construction."""
        self.load_weights(under("weight ", state))
        self.load_stream_state(under("state ", state))

    def reset(self) -> None:
        """Return to the state after construction."""
        for base in self._both:
            base.reset()

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """Forget the tokens read in the block: the stream goes on from where it stood."""
        with ExitStack() as stack:
            for base in self._both:
                stack.enter_context(base.preserve_state())
            yield

    def weights(self) -> dict[str, Tensor]:
        """Return the weights that learn, by name, and the state of their rate; empty if the base
        stays as trained.
        """
        if self._trained is None:
            return {}
        return {
            **self._base.parameters(),
            **({} if self._moving is None else self._moving.rate_state()),
        }

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Go on with weights that :meth:`weights` gave; a base that stays as trained ignores
        them.
        """
        learning = {} if self._trained is None else self._base.parameters()
        learned = {name: weight for name, weight in weights.items() if not name.startswith(RATE)}
        if learned and learning and learned.keys() != learning.keys():
            raise UserError(
                f"other weights learned there ({', '.join(learned)}); load the model as it was then"
            )
        for name, weight in learning.items() if learned else ():
            weight.copy_(learned[name])
        if self._moving is not None:
            self._moving.load_rate_state(dict(weights))


def dynamic_base(
    model: TrainedModel, config: DynamicConfig, training: Callable[[], Ids] | None
) -> BaseAndTrained:
    """Return the base of dynamic evaluation; ``training`` returns the ids (T,) of the model's
    training, if known.
    """
    base = DynamicBase(
        model.base(), config, gradient_statistics(model, config, training or _unknown)
    )
    return BaseAndTrained(base, base.trained or model.base())


def _unknown() -> Ids:
    raise UserError(
        "the training text is needed, but it is not known; dynamic.rule=stream does without it"
    )
