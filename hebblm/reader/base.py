"""Texts read side by side by one method: it predicts all, scores all, and only then learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.needs import Learned, Learner
from hebblm.errors import UserError
from hebblm.evaluation.training_text import gradient_statistics
from hebblm.io.tensors import prefixed, under
from hebblm.models.base import GradientBase, Ids, State, StreamBase, TrainedModel
from hebblm.models.dynamic import RATE, TRAINED, DynamicBase, DynamicConfig
from hebblm.online.layout import Layout
from hebblm.online.session import Labelled, step
from hebblm.reader.scores import Scores
from hebblm.text.vocabulary import Encoded
from hebblm.text.words import spelled_bytes
from hebblm.types import OutputHead


class ReaderBase:
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
        self._logits = base.head.weight.new_zeros(
            0, 0
        )  # (N, V) of the trained base, of the tokens read last

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
        found = []
        for base in (self._base, self._trained):
            if base is not None:
                with base.aside():
                    first = base.read(shared)[-1:]
                    after = iter(base.branches(longer) if longer else ())
                found.append(
                    [torch.cat([first, next(after)]) if len(row) else first for row in rows]
                )
        return found[0], found[1] if len(found) > 1 else None

    def branches(self, rows: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor] | None]:
        """Return states (N_b, D) after each token of continuations (N_b,), and the trained base's
        as :meth:`beyond`.
        """
        return self._base.branches(rows), None if self._trained is None else self._trained.branches(
            rows
        )

    @property
    def room(self) -> int:
        """Number of tokens that :meth:`back` could still undo at no cost."""
        return min(base.room for base in self._both)

    def back(self, count: int) -> None:
        """Forget the last ``count`` of the tokens read last."""
        for base in self._both:
            base.back(count)

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
        with torch.enable_grad():
            self._base.learn(targets)

    def grow(self, rows: int) -> None:
        """Append rows for new words."""
        for base in self._both if rows else ():
            base.grow(rows)

    def stream_state(self) -> State:
        """Return the state in the stream, without weights."""
        beside = {} if self._trained is None or self._along else self._trained.stream_state()
        return {**self._base.stream_state(), **prefixed(TRAINED, beside)}

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

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Forget the tokens read in the block: the stream goes on from where it stood."""
        with ExitStack() as stack:
            for base in self._both:
                stack.enter_context(base.aside())
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
) -> ReaderBase:
    """Return the base of dynamic evaluation; ``training`` returns the ids (T,) of the model's
    training, if known.
    """
    base = DynamicBase(
        model.base(), config, gradient_statistics(model, config, training or _unknown)
    )
    return ReaderBase(base, base.trained or model.base())


def _unknown() -> Ids:
    raise UserError(
        "the training text is needed, but it is not known; dynamic.rule=stream does without it"
    )


@dataclass(frozen=True, slots=True)
class StreamReader:
    """Base, context and rule that read texts."""

    base: ReaderBase  # reads as many streams as there are texts
    context: Context  # head, memory and counts, and the state of each stream
    rule: Rule  # predicts the tokens
    every: int  # tokens of a text between two updates
    unknown: int | None  # id that a word without a row reads as; None if all have rows
    learn: bool  # whether it learns from the tokens after scoring
    check: Callable[
        [Rule, EvalBatch, Tensor], None
    ]  # of what the rule promises, before it scores labels (N,)

    def scores(
        self,
        texts: Sequence[Encoded],
        sizes: Sequence[int],
        last: Tensor,
        progress: Callable[[int, int], None],
    ) -> list[Scores]:
        """Return the losses of each text's tokens, adapted and not: predict, score, then learn each
        interval.
        """
        lengths = [len(text.ids) for text in texts]
        total = sum(lengths)
        layout = Layout(tuple(accumulate([0, *lengths[:-1]])), tuple(lengths))
        ids = last.new_tensor([index for text in texts for index in text.ids])  # (T,)
        inputs = torch.cat(
            [torch.cat([last, own])[:-1] for own in torch.split(ids, lengths)]
        )  # (T,)
        adapted, base = (torch.zeros(total, dtype=torch.float32, device="cpu") for _ in range(2))
        new = torch.zeros(total, dtype=torch.bool, device="cpu")  # (T,)
        for begin, text in zip(layout.begins, texts, strict=True):
            new[[begin + place for place in text.unknown]] = True

        followed: dict[int, dict[Learner[Any], Learned]] = {}

        def score(item: Labelled) -> None:
            rows = len(item.batch.head.weight)
            targets, places = self.known(item.labels, rows), torch.from_numpy(item.places)
            self.check(self.rule, item.batch, item.labels)
            adapted[places] = self.rule.score(item.batch, targets).float().cpu()
            base[places] = self.base.trained_losses(item.batch, targets).float().cpu()
            new[places] |= (item.labels >= rows).cpu()
            if not self.learn:
                followed.update(item.batch.shares_after(targets))

        before = [state.history[::-1].tolist() for state in self.context.stream_states]
        for start in range(0, layout.longest, self.every):
            stop = min(start + self.every, layout.longest)
            with self._whole():
                step(
                    self._predict(layout, ids, inputs, start, stop),
                    score,
                    self._learn if self.learn else None,
                )
            if not self.learn:  # learning moves the context on by itself
                self.context.follow(followed)
                self.context.begin(
                    *(
                        past + list(text.ids[:stop])
                        for past, text in zip(before, texts, strict=True)
                    )
                )
            progress(sum(min(stop, length) for length in lengths), total)
        parts = (torch.split(rows, lengths) for rows in (adapted, base, new))
        return [
            _scores(text, size, nll, flags, unadapted=_scores(text, size, plain, flags))
            for text, size, nll, plain, flags in zip(texts, sizes, *parts, strict=True)
        ]

    def _predict(
        self, layout: Layout, ids: Tensor, inputs: Tensor, start: int, stop: int
    ) -> Iterator[Labelled]:
        """Yield the mini-batches of an interval of all texts, one by one."""
        states = self.base.read(
            self.known(layout.cut(inputs, start, stop), len(self.base.head.weight))
        )
        states = states if layout.streams > 1 else states[None]  # (B, n, D)
        for group in layout.groups(start, stop, self.every):
            labels = layout.labels(group, ids)  # (N,)
            block = layout.block(group, labels, self.every, written=self.learn)
            batch = EvalBatch(layout.states(group, states, start), self.context, block)
            yield Labelled(batch, labels, layout.places(group))

    def known(self, ids: Tensor, rows: int) -> Tensor:
        """Return ids with ``<unk>`` in place of words that have no row yet.

        Without such words it is the same tensor, so that scoring and learning compute its losses
        once.
        """
        new = ids >= rows
        return ids if self.unknown is None or not new.any() else ids.masked_fill(new, self.unknown)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Move the base back to the beginning of an interval that is interrupted."""
        before = self.base.stream_state()
        try:
            yield
        except BaseException:  # Ctrl-C too: the same text is read again from here
            self.base.load_stream_state(before)
            self.context.set_head(self.base.head)
            raise

    def _learn(self, labels: Sequence[Tensor]) -> None:
        """Train the base on the labels; new words get rows after those of the head."""
        came, rows = torch.cat(list(labels)), len(self.base.head.weight)
        self.base.learn(self.known(came, rows))
        self.base.grow(max(0, int(came.max()) + 1 - rows))
        self.context.set_head(self.base.head)


def _scores(
    text: Encoded, size: int, nll: Tensor, new: Tensor, *, unadapted: Scores | None = None
) -> Scores:
    spelled = sum(
        spelled_bytes(token) for token, flag in zip(text.tokens, new.tolist(), strict=True) if flag
    )
    return Scores(text.tokens, nll, new, size, text.words, spelled, text.lost, unadapted)


class Following:
    """Expectation after rows of pieces that follow the text read so far; the base reads all rows at
    once.

    Args:
        reader: its base stands at that place.
        past: the last tokens read.
        first: log-probabilities (V,) in nats at that place, adapted and not.
    """

    def __init__(
        self, reader: StreamReader, past: Sequence[int], first: tuple[Tensor, Tensor]
    ) -> None:
        self._reader, self._past, self._first = reader, past, first

    def __call__(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (R, V) in nats after rows of pieces, adapted and not."""
        if not rows[0]:
            return self._first[0][None], self._first[1][None]
        base, context = self._reader.base, self._reader.context
        after = base.branches([torch.tensor(row, device=base.head.weight.device) for row in rows])
        states, trained = (
            None if each is None else torch.stack([row[-1] for row in each]) for each in after
        )
        assert states is not None
        batch = EvalBatch.after(rows, states.to(base.head.weight.dtype), context, self._past)
        return self._reader.rule.log_probs(batch), base.trained_log_probs(batch, trained)
