"""A seat: a place that stands in a text, and keeps what it has computed for the next question about
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hebblm.models.base import State
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.reader.own_text import OwnText, TextStart
from hebblm.reader.session import ReaderSession

PLACES = 8  # states that a recurrent model keeps of one text


class Seat(TextStart):
    """The beginning of a text, with the text of the last question.

    A question about the same text goes on from what they share: a model with attention keeps keys
    and values, a recurrent one its state at a few places.

    Args:
        session: belongs to this seat alone.
    """

    def __init__(self, session: ReaderSession) -> None:
        super().__init__(session)
        self._text: OwnText | None = None
        self._begins = True
        self._places: list[tuple[int, State]] = []  # of a recurrent model, the longest last
        model = session.model
        self._window: int | None = None
        self._cuts = isinstance(model, HuggingFaceModel) and not model.recurrent
        if isinstance(model, HuggingFaceModel) and self._cuts:
            self._window = model.context

    def shared(self, ids: Sequence[int], *, begins: bool) -> int:
        """Return how many tokens the text of the last question shares with others."""
        if self._text is None or begins != self._begins:
            return 0
        count = 0
        for one, other in zip(self._text.ids, ids, strict=False):
            if one != other:
                break
            count += 1
        return count

    @contextmanager
    def text(self, ids: Sequence[int], *, begins: bool = True) -> Iterator[OwnText]:
        known = self._go_back(self.shared(ids, begins=begins))
        if not known:
            self.session.begin_text()
            self._text, self._begins = OwnText(self.session, begins=begins), begins
            self._places = []
        text = self._text
        assert text is not None
        self._text = None  # until the block ends well
        text.read(ids[len(text) :])
        if not self._cuts:
            self._places = [*self._places, (len(text), self.session.base.stream_state())][-PLACES:]
        yield text
        if self._window is None or len(text) <= self._window:
            self._text = text

    def _go_back(self, shared: int) -> int:
        """Go back to the first tokens of the text, at most ``shared``, and return their number."""
        text, base = self._text, self.session.base
        if text is None or not shared:
            return 0
        if self._cuts:
            base.rewind(len(text) - shared)
        else:
            self._places = [place for place in self._places if place[0] <= shared]
            if not self._places:
                return 0
            shared, state = self._places[-1]
            base.load_stream_state(state)
        text.cut(shared)
        return shared
