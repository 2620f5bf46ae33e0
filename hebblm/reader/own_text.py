"""A text of its own that a session reads to predict it, from its beginning, as it grows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import STEP
from hebblm.adapt.context import StreamState
from hebblm.reader.session import Continuations, ReaderSession

AT_ONCE = 8 * STEP  # tokens whose evidence is computed together


class OwnText:
    """A text that a session reads from its beginning; nothing is learned from it.

    Its own words show how far to trust each part of the method: mixture weights follow it, an
    interval at a time. Intervals are counted from the beginning of the text, so that no
    log-probability depends on the parts in which the text comes.

    Args:
        session: stands at the beginning of a text, and is moved on. It belongs to this object, or
            the caller puts base and context aside.
        begins: whether the first id is the one that a text follows, which is not a word of it.
    """

    def __init__(self, session: ReaderSession, *, begins: bool) -> None:
        self.session = session
        self.ids: list[int] = []
        self._every = min(session.update_every, STEP)
        self._outside = int(begins)  # tokens before the text: its beginning
        self._states = torch.empty(0)  # (T, D) after each token
        self._ahead: Continuations | None = None  # after the last token, once somebody asked
        # the state of the stream at the beginning of each interval so far
        self._marks: list[list[StreamState]] = [session.context.stream_states]

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Sequence[int]) -> None:
        """Read tokens (N,) that follow those before them."""
        if len(ids):
            tokens = self.session.last.new_tensor(ids)
            self.take(ids, self.session.base.read(tokens))

    def take(self, ids: Sequence[int], states: Tensor) -> None:
        """Go on by tokens (N,) whose states (N, D) the base has computed already."""
        if not self.ids:
            self._states = states[:0]
            self._begin(ids)
        self._states = torch.cat([self._states, states])
        self.ids += ids
        if len(ids):
            self._ahead = None
        if not self.session.context.learners:
            return
        while len(self.ids) > (begin := (len(self._marks) - 1) * self._every) + self._every:
            end = begin + (len(self.ids) - 1 - begin) // self._every * self._every
            # Intervals of ten tokens are computed together; shorter ones are rare.
            end = min(end, begin + (AT_ONCE if self._every == STEP else self._every))
            with self._standing(self._marks[-1]):
                labels = self.session.last.new_tensor(self.ids[begin + 1 : end + 1])
                self._marks += self.session.states_along(self._states[begin:end], labels)

    def cut(self, length: int) -> None:
        """Forget all tokens but the first ``length``; the base must have gone back already."""
        if length < len(self.ids):
            self._ahead = None
        self.ids, self._states = self.ids[:length], self._states[:length]
        del self._marks[max(0, length - 1) // self._every + 1 :]

    def log_probs(self, begin: int | None = None) -> Tensor:
        """Return adapted log-probabilities (N, V) in nats after each token from one on, or after
        the last.
        """
        if begin is None:
            with self.standing():
                return self.session.predictor.log_probs(self._batch(len(self.ids) - 1, None))
        rows = [*self.rows(begin)]
        if not rows:
            return self._states.new_zeros(0, len(self.session.base.head.weight))
        return torch.cat(rows)

    def rows(self, begin: int) -> Iterator[Tensor]:
        """Yield the log-probabilities (N, V) of :meth:`log_probs`, an interval at a time."""
        for first, last in pairwise(self._grid(begin, len(self.ids))):
            # Rounding depends on the rows of a batch. So an interval is always predicted from its
            # first row on, wherever the asked rows begin.
            start = first // self._every * self._every
            with self._standing(self._marks[self._interval(first)]):
                rows = self.session.predictor.log_probs(self._batch(start, last))
            yield rows[first - start :]

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Give the context the state that predicts what follows the last token, in the block."""
        with self._standing(self._marks[self._interval(len(self.ids) - 1)]):
            yield

    @property
    def words(self) -> list[int]:
        """The tokens so far that are words of the text."""
        return self.ids[self._outside :]

    @contextmanager
    def expectation(self) -> Iterator[tuple[EvalBatch, Continuations]]:
        """Give the query after the last token, and the expectation there, in the block."""
        session, end = self.session, len(self.ids)
        with self.standing():
            batch = self._batch(end - 1, end)
            if self._ahead is None:
                adapted = session.predictor.log_probs(batch)[0]
                first = adapted, session.base.trained_log_probs(batch)[0]
                self._ahead = Continuations(session, self.words, first)
            yield batch, self._ahead

    def _batch(self, first: int, last: int | None) -> EvalBatch:
        return self.session.query(self._states[first:last], self.ids[self._outside : last])

    def _begin(self, ids: Sequence[int]) -> None:
        """Begin the n-grams with the first token, unless it is not a word of the text."""
        if not self._outside and self.session.context.ngrams is not None:
            with self._standing(self._marks[0]):
                for state in self.session.context.stream_states:
                    state.history = self.session.context.ngrams.context_after(ids[:1])
                self._marks[0] = self.session.context.stream_states

    def _grid(self, begin: int, end: int) -> list[int]:
        """Return places where rows (begin to end) are cut: each interval is predicted alone."""
        inner = range((begin // self._every + 1) * self._every, end, self._every)
        return [begin, *inner, end] if begin < end else []

    def _interval(self, place: int) -> int:
        """Return the number of the interval of a token, as far as weights follow the text."""
        return min(place // self._every, len(self._marks) - 1)

    @contextmanager
    def _standing(self, states: Sequence[StreamState]) -> Iterator[None]:
        context = self.session.context
        before = context.stream_states
        context.stream_states = [copy.copy(state) for state in states]
        try:
            yield
        finally:
            context.stream_states = before


class TextStart:
    """The beginning of a text, where a session stands: a question there is a text of its own.

    Args:
        session: stands at the beginning of a text; a question leaves it there.
    """

    def __init__(self, session: ReaderSession) -> None:
        self.session = session

    @contextmanager
    def text(self, ids: Sequence[int], *, begins: bool = True) -> Iterator[OwnText]:
        """Give a text with some tokens (N,), which may go on in the block.

        Args:
            ids: the tokens.
            begins: whether the first one is the one that a text follows.
        """
        with self.session.base.preserve_state(), self.session.context.preserve_state():
            text = OwnText(self.session, begins=begins)
            text.read(ids)
            yield text


@contextmanager
def standing_after(
    session: ReaderSession, ids: Tensor, beginning: TextStart | None
) -> Iterator[tuple[EvalBatch, Continuations]]:
    """Stand after tokens (N,), where the first was read before: give the query there, and the
    expectation.

    Within a text the words of a question need not be those expected there, and say nothing of how
    far to trust the memory.

    Args:
        session: where it stands, the tokens follow.
        ids: the tokens.
        beginning: None if the session stands within a text.
    """
    if beginning is not None:
        with beginning.text(ids.tolist()) as text, text.expectation() as expectation:
            yield expectation
        return
    with session.base.preserve_state(), session.context.preserve_state():
        hidden = session.base.read(ids)
        past = session.past_with(ids)
        batch = session.query(hidden[-1:], past)
        first = session.predictor.log_probs(batch)[0], session.base.trained_log_probs(batch)[0]
        yield batch, Continuations(session, past, first)
