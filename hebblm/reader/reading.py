"""Reading of texts by a session, with their record in the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hebblm.errors import UserError
from hebblm.reader.history import Journal, OpenText
from hebblm.reader.inputs import Spelled, Text, encoded_documents
from hebblm.reader.scores import Scores
from hebblm.reader.session import ReaderSession
from hebblm.text.vocabulary import Encoded, Vocabulary

Report = Callable[[int, int], None]
"""Called after each interval with the number of tokens done, and of all."""


class TextInParts:
    """A text that is read in one part or several, and recorded from the first of them on.

    Args:
        name: of the document.
        learn: whether the session learns from it.
        text: the text to keep, its pieces as they come, or its known tokens; None for ids.
        progress: called after each interval of a part.
    """

    def __init__(
        self, name: str, learn: bool, text: str | list[str] | Spelled | None, progress: Report
    ) -> None:
        self._name, self._learn, self._text, self._progress = name, learn, text, progress
        self._open: OpenText | None = None

    def read(
        self,
        session: ReaderSession,
        journal: Journal,
        take: Callable[[Vocabulary], tuple[Encoded, int] | None],
    ) -> Scores | None:
        """Read the next part, if there is one.

        Args:
            session: it goes on from the part before.
            journal: records the text.
            take: returns the part's tokens and its bytes; None if there is no part now.

        Raises:
            UserError: another text was read since the part before.
        """
        with _without_rowless_words(session):
            part = take(session.vocabulary)
            if part is None:
                return None
            if self._open is None:
                self._open = self._begin(session, journal)
            if not journal.reads(self._open):
                raise UserError(
                    "another text was read before this one was finished; read one text after "
                    "the other"
                )
            return self._read_on(session, self._open, *part)

    @property
    def tokens(self) -> int:
        """Number of tokens that were read."""
        return 0 if self._open is None else len(self._open.tokens)

    def end(self) -> None:
        """Record that the text was read to its end."""
        if self._open is not None:
            self._open.end()

    def _begin(self, session: ReaderSession, journal: Journal) -> OpenText:
        """Record that the text is read now, from its beginning unless it goes on."""
        if not journal.goes_on(self._name):
            session.begin_text()
        elif self._learn:
            session.context.restore_learned_weights()
        text = OpenText(self._name, self._learn, journal.now(), self._text)
        journal.begin([text], len(session.base.head.weight), together=False)
        return text

    def _read_on(
        self, session: ReaderSession, text: OpenText, encoded: Encoded, size: int
    ) -> Scores:
        before = len(text.tokens)

        def moved(done: int, total: int) -> None:
            text.tokens.extend(encoded.ids[len(text.tokens) - before : done])
            self._progress(done, total)

        scores = session.read([encoded], [size], moved, learn=self._learn)[0]
        text.bytes += size
        return scores


def read_documents(
    session: ReaderSession,
    journal: Journal,
    names: Sequence[str],
    texts: Sequence[Text],
    *,
    learn: bool,
    progress: Report,
) -> list[Scores]:
    """Read documents side by side, each from its beginning.

    Args:
        session: stands at the beginning of a text afterwards.
        journal: records the documents.
        names: of the documents.
        texts: the documents.
        learn: whether the session learns from them.
        progress: called after each interval of all of them.

    Returns:
        Their losses, in their order.

    Raises:
        UserError: several documents for a base that learns.
    """
    if not len(texts):
        return []
    if session.uses_dynamic_base and len(texts) > 1:
        raise UserError(
            f"{session.method} learns from one text at a time, not from {len(texts)} documents "
            "side by side; read them one after the other"
        )
    every = session.update_every
    with _without_rowless_words(session):
        encoded, sizes = encoded_documents(session.vocabulary, texts, every, include=learn)
        session.begin_text()
        readings = []
        for name, text in zip(names, texts, strict=True):
            kept = text if isinstance(text, str | Spelled) else None
            readings.append(OpenText(name, learn, journal.now(), kept))
        journal.begin(readings, len(session.base.head.weight), together=True)

        def moved(done: int, total: int) -> None:
            for reading, text in zip(readings, encoded, strict=True):
                at = len(reading.tokens)
                reading.tokens.extend(text.ids[at : at + every])
            progress(done, total)

        try:
            with session.as_batch(len(texts)) as batch:
                losses = batch.read(encoded, sizes, moved, learn=learn)
            for reading, size in zip(readings, sizes, strict=True):
                reading.bytes = size
                reading.end()
        finally:
            journal.began()  # what follows these texts is another one
        return losses


@contextmanager
def _without_rowless_words(session: ReaderSession) -> Iterator[None]:
    """Remove the words that have no row yet if reading is interrupted."""
    try:
        yield
    except BaseException:  # Ctrl-C too: a word without a row cannot be predicted
        session.vocabulary.exclude(len(session.base.head.weight))
        raise
