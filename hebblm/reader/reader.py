"""A reader: it predicts a text by one method, scores it, and only then learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast, overload

import torch

from hebblm.adapt.context import Context
from hebblm.adapt.contract import FirstBatches
from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import whole
from hebblm.memory import build_memory
from hebblm.memory.persistence import Owner
from hebblm.models.base import Ids, TrainedModel, device_of
from hebblm.reader.base import ReaderBase, dynamic_base
from hebblm.reader.checkpoint import (
    ReaderSetup,
    ReaderState,
    check_asked,
    choose,
    open_reader,
    save_reader,
)
from hebblm.reader.history import Journal, Opened, ReadDocument, Reading, documents
from hebblm.reader.inputs import (
    Intervals,
    Progress,
    Spelled,
    Text,
    Texts,
    are_documents,
    encoded_documents,
    encoded_text,
    followed,
    name_of,
    named,
    pieces_of,
    reported,
)
from hebblm.reader.queries import Answers, learnable
from hebblm.reader.replay import check_still, read_again, without_documents, without_word
from hebblm.reader.scores import Scores
from hebblm.runtime.progress import say
from hebblm.runtime.turns import turn
from hebblm.text.fitting import tell_loss
from hebblm.text.vocabulary import Encoded, Vocabulary


@learnable
class Reader(Answers):
    """Reader of a text: it reads once and in order, and remembers what it read.

    It predicts every token from what it learned before the token's interval. After ``update_every``
    tokens, or at the end of a call of :meth:`read`, the hidden states and words of the interval go
    into the memory. A new word gets a row of zeros in the softmax layer. The base stays as it was
    trained. With a method of dynamic evaluation, a copy of its weights learns from each interval as
    well.

    Args:
        model: the trained model; the reader never changes it.
        vocabulary: the model's vocabulary; the reader adds new words to it.
        method: a name from :data:`hebblm.METHODS`. None takes that of the reader saved in
            ``memory``, or ``best``.
        memory: folder that :meth:`save` wrote, to go on from there; None starts with an empty
            memory.
        k: neighbours of each query. None takes the saved reader's number, or 200.
        update_every: most tokens between two updates; 1 learns from each token at once, more tokens
            take less time. None takes the saved reader's number, or 50.
        settings: hyper-parameters by dotted name, e.g. ``{"hebb.beta": 0.9}``; the others keep the
            saved reader's values.
        defaults: values by dotted name, used where neither ``settings`` nor the saved reader has a
            value.
        name: the model's name, which is saved with the memory.
        training: returns the ids (T,) that the model was trained on; dynamic evaluation's rms rule
            measures the size of gradients on them.

    Raises:
        UserError: an unknown method or setting, a learning rate for the base itself (``base.lr``),
            a memory of another model, ``memory.*`` settings together with a saved memory, or the
            rms rule without the training text.
    """

    def __init__(
        self,
        model: TrainedModel,
        vocabulary: Vocabulary,
        method: str | None = None,
        *,
        memory: str | Path | None = None,
        k: int | None = None,
        update_every: int | None = None,
        settings: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        name: str | None = None,
        training: Callable[[], Ids] | None = None,
    ) -> None:
        asked, beside = settings or {}, (vocabulary.splitting, tuple(vocabulary.words))
        check_asked(method, asked, memory)
        device = device_of(model)
        self._owner = Owner(model_hash=model.sha256, dictionary_hash=vocabulary.hash())
        opened = ReaderState() if memory is None else open_reader(Path(memory), self._owner, device)
        chosen = choose(method, k, update_every, asked, defaults or {}, opened.setup, memory)
        values = chosen.values
        self.model = model
        self.method = chosen.method
        self.moving = METHODS[self.method].moving
        self.update_every = chosen.update_every
        self.vocabulary = vocabulary
        read_by = values.read_by(self.method)
        self._setup = ReaderSetup(
            self.method, chosen.k, chosen.update_every, read_by, name or opened.setup.model
        )
        self._training = training
        how = {
            **read_by,
            **{f"memory.{key}": value for key, value in asdict(values.memory).items()},
        }
        opening = Opened(self.method, chosen.k, self.update_every, how, *beside, model.reading())
        self.journal = Journal(vocabulary, opened.record, opening)
        self._told_of_loss = False
        if model.keyed:
            METHODS[self.method].check_keys(values.methods)
        self._rule = METHODS[self.method].rule(values.methods)
        self._first = FirstBatches([self.method])
        self._base = (
            dynamic_base(model, values.dynamic, training)
            if self.moving
            else ReaderBase(model.base())
        )
        if vocabulary.splitting is None and opened.splitting is not None:
            vocabulary.split(opened.splitting)
        vocabulary.include(opened.words)
        self._base.grow(len(vocabulary.words))
        opened.check_labels(len(self._base.head.weight), memory)
        self._base.load_weights(opened.weights)
        self._beginning = self._base.stream_state()
        self._last = torch.tensor([vocabulary.start], device=device)
        self._memory = (
            build_memory(model.key_width, values.memory, device)
            if opened.memory is None
            else opened.memory
        )
        self._context = Context(
            self._base.head,
            self._memory,
            k=chosen.k,
            train_counts=torch.tensor(
                [*vocabulary.counts, *[0] * len(vocabulary.words)], device=device
            ),
            # None where no text has words that training did not have
            new_classes=torch.arange(len(vocabulary), device=device) >= vocabulary.known
            if vocabulary.grows
            else None,
            window=self._rule.needs.window,
        )
        self._context.learn_shares([self._rule])
        if opened.state is not None:
            self._base.load_stream_state(opened.state)
            self._last = opened.last
            self._context.recall(opened.observed, *opened.recent)
        elif opened.memory is not None:  # a memory alone: each of its entries was read once
            self._context.observed = self._memory.counts(len(vocabulary))
        self._context.recall_ngrams(opened.ngrams)
        if unused := self._context.recall_shares(opened.shares):
            say(
                f"{memory} holds learned shares that {self.method} does not use here: "
                f"{'; '.join(unused)}"
            )
        if opened.state is None:
            self._context.begin()

    @overload
    def read(  # type: ignore[overload-overlap]
        self, text: Text, *, learn: bool = True, progress: Progress = ..., name: str | None = ...
    ) -> Scores: ...

    @overload
    def read(
        self, text: Texts, *, learn: bool = True, progress: Progress = ...
    ) -> list[Scores]: ...

    def read(
        self,
        text: Text | Texts,
        *,
        learn: bool = True,
        progress: Progress = None,
        name: str | None = None,
    ) -> Scores | list[Scores]:
        """Predict, score and then learn a text that goes on from the last call, or several
        documents side by side.

        Documents share memory and counts. Each is read from its beginning, with its own state and
        window: the reader predicts and scores an interval of all of them, then learns from it in
        their order. Afterwards it stands at the beginning of a text, with the window of the last
        document. The first string decides how all texts are split into words: at blanks, or at
        punctuation too where that fits the model's own text. The reader prints that choice.

        A text goes on from the one before if both have the same name, or no name; another name
        starts a new text.

        Args:
            text: a string, whose line breaks become ``<eos>``, or the ids of known words, (T,); or
                a list of such documents, or a dict of them by name, which the base reads as one
                batch.
            learn: whether the reader remembers the text. If not, only its place in the text moves
                on; up to the end of that text it learns how far to trust each part of its method.
                Of such a text :meth:`save` keeps the place alone, and :meth:`begin` leaves that
                too.
            progress: called with the number of tokens done and T after each interval; None shows a
                bar on a terminal.
            name: the document's name, to give to :meth:`forget`.

        Returns:
            The loss of each token in nats, with and without adaptation; for documents a list, in
            their order.

        Raises:
            UserError: no text, an id that the vocabulary does not have, several documents for
                dynamic evaluation, or a progress that cannot be called.
        """
        with followed(progress) as report:
            if isinstance(text, Mapping) or are_documents(text):
                found = self._read_documents(*named(cast(Texts, text), name), learn, report)
                self._tell_loss(found)
                return found
            return self._read_text(cast(Text, text), learn, report, name_of(name))

    def _read_text(
        self, text: Text, learn: bool, report: Callable[[int, int], None], name: str
    ) -> Scores:
        with self._rowed():
            encoded, size = encoded_text(self.vocabulary, text, include=learn)
            reading = self._begin(name, learn, text if isinstance(text, str | Spelled) else None)
            scores = self._read_on(encoded, size, learn, report, reading)
        reading.end()
        self._tell_loss([scores])
        return scores

    def read_pieces(
        self,
        pieces: Iterable[str],
        *,
        learn: bool = True,
        progress: Progress = None,
        name: str | None = None,
        max_tokens: int | None = None,
    ) -> Iterator[Scores]:
        """Read a text that comes in pieces as :meth:`read` reads it in one call; few pieces are
        held at once.

        An interval can span several pieces. Each piece is tokenized alone. That gives the tokens of
        the whole text if words are split at blanks and pieces end with a line or before a blank. A
        tokenizer that looks further may split a word differently there.

        Args:
            pieces: the text's pieces in order; the reader takes each one after it has read those
                before it.
            learn: as in :meth:`read`.
            progress: called after each interval with the number of tokens done in a part and the
                part's tokens.
            name: the text's name, which is saved with the memory.
            max_tokens: the most tokens to read; None reads all.

        Yields:
            The scores of the text's parts, in order. A word that spans two parts is among the words
            of both, and ``goes_on`` of the second part's words says so.

        Raises:
            UserError: as for :meth:`read`, or one string instead of pieces.
        """
        report, name = reported(progress), name_of(name)
        most = None if max_tokens is None else whole("max_tokens", max_tokens)
        intervals = Intervals(self.update_every, include=learn, most=most)
        reading: Reading | None = None

        def read(take: Callable[[Vocabulary], tuple[Encoded, int] | None]) -> Scores | None:
            nonlocal reading
            with self._rowed():
                if (part := take(self.vocabulary)) is None:
                    return None
                reading = reading or self._begin(name, learn, intervals.texts)
                if not self.journal.reads(reading):
                    raise UserError(
                        "another text was read before this one was finished; read one text after "
                        "the other"
                    )
                return self._read_on(*part, learn, report, reading)

        for piece in pieces_of(
            pieces
        ):  # other threads may ask while the text comes, and between its parts
            with turn(self):
                scores = read(partial(intervals.after, piece))
            if scores is not None:
                yield scores
            if intervals.full:
                break
        with turn(self):
            scores = read(intervals.rest)
            if reading is not None and (most is None or len(reading.tokens) < most):
                reading.end()
        if scores is not None:
            yield scores

    def _tell_loss(self, scores: Sequence[Scores]) -> None:
        """Print once what the tokenizer loses of a text, or of documents that are read together."""
        lost = sum(each.lost for each in scores)
        if lost and not self._told_of_loss:
            self._told_of_loss = True
            tell_loss("this text", lost, sum(each.bytes for each in scores))

    def _begin(self, name: str, learn: bool, text: str | list[str] | Spelled | None) -> Reading:
        """Record that a text is read now, from its beginning unless it goes on."""
        if not self.journal.goes_on(name):
            self._stand()
        elif learn:
            self._context.settle()
        reading = Reading(name, learn, self.journal.now(), text)
        self.journal.begin([reading], len(self._base.head.weight), together=False)
        return reading

    def _read_on(
        self,
        encoded: Encoded,
        size: int,
        learn: bool,
        progress: Callable[[int, int], None],
        reading: Reading,
    ) -> Scores:
        ids, before = encoded.ids, len(reading.tokens)

        def moved(done: int, total: int) -> None:
            reading.tokens.extend(ids[len(reading.tokens) - before : done])
            self._last = self._last.new_tensor([ids[done - 1]])
            progress(done, total)

        scores = self._with(self._base, learn).scores([encoded], [size], self._last, moved)[0]
        reading.bytes += size
        return scores

    def _read_documents(
        self,
        names: Sequence[str],
        texts: Sequence[Text],
        learn: bool,
        progress: Callable[[int, int], None],
    ) -> list[Scores]:
        if not len(texts):
            return []
        if self.moving and len(texts) > 1:
            raise UserError(
                f"{self.method} learns from one text at a time, not from {len(texts)} documents "
                "side by side; "
                "read them one after the other"
            )
        with self._rowed():
            return self._read_side_by_side(names, texts, learn, progress)

    def _read_side_by_side(
        self,
        names: Sequence[str],
        texts: Sequence[Text],
        learn: bool,
        progress: Callable[[int, int], None],
    ) -> list[Scores]:
        encoded, sizes = encoded_documents(self.vocabulary, texts, self.update_every, include=learn)
        self._stand()
        readings = [
            Reading(
                name, learn, self.journal.now(), text if isinstance(text, str | Spelled) else None
            )
            for name, text in zip(names, texts, strict=True)
        ]
        self.journal.begin(readings, len(self._base.head.weight), together=True)

        def moved(done: int, total: int) -> None:
            for reading, text in zip(readings, encoded, strict=True):
                at = len(reading.tokens)
                reading.tokens.extend(text.ids[at : at + self.update_every])
            progress(done, total)

        base = self._base
        if len(texts) > 1:
            base = ReaderBase(self.model.base(streams=len(texts)))
            base.grow(len(self._base.head.weight) - len(base.head.weight))
        try:
            with self._context.side_by_side(len(texts)):
                try:
                    found = self._with(base, learn).scores(encoded, sizes, self._last, moved)
                finally:
                    self._base.grow(len(base.head.weight) - len(self._base.head.weight))
                    self._context.set_head(self._base.head)
                    self._stand()
            for reading, size in zip(readings, sizes, strict=True):
                reading.bytes = size
                reading.end()
        finally:
            self.journal.began()  # what follows these texts is another one
        return found

    @contextmanager
    def _rowed(self) -> Iterator[None]:
        """Remove the words that have no row yet if reading is interrupted."""
        try:
            yield
        except BaseException:  # Ctrl-C too: a word without a row cannot be predicted
            self.vocabulary.exclude(len(self._base.head.weight))
            raise

    def documents(self) -> list[ReadDocument]:
        """Return the documents that the reader learned from, in order; those of the memory it began
        with come first.
        """
        return documents(self.journal.record)

    def rename(self, name: str, other: str) -> None:
        """Give a document another name, as if it had been read under that one.

        Raises:
            UserError: no such document, or another one has that name.
        """
        self.journal.rename(name_of(name), name_of(other))

    def forget(
        self, *names: str, word: str | None = None, replay: bool = False, progress: Progress = None
    ) -> None:
        """Become, to the bit, the reader that never read some documents, or that read every text
        without a word.

        It reads all other texts again, in the same order and parts. If you interrupt it, nothing
        changes. Texts that it did not learn from are not kept: what went on from one begins anew.

        Args:
            names: the documents' names; "" stands for all text without a name.
            word: a word to forget instead, without blanks; in capital and small letters, not within
                another word.
            replay: True is needed where the base learned from the texts as well.
            progress: called after each interval with the number of tokens done and the number of
                all.

        Raises:
            UserError: no such document or word, a text of a memory that the reader began with, a
                text that is gone, a base that learns and no ``replay``, or a model that now reads
                in another window.
        """
        record = self.journal.record
        if bool(names) == (word is not None):
            raise UserError("name documents to forget, or word=... alone")
        if word is not None:
            left = without_word(record, word, self.vocabulary)
        else:
            left = without_documents(record, [*map(name_of, names)])
        check_still(record, whole=replay)
        vars(self).update(
            vars(read_again(left, self.journal.opening, self._as, reported(progress)))
        )

    def _as(self, how: Opened, memory: Path | None, asked: Mapping[str, Any]) -> Reader:
        """Open a reader of the same model in the way this one was once opened."""
        if how.reading != self.model.reading():
            then, now = (
                ", ".join(f"{name} = {value}" for name, value in reading.items())
                for reading in (how.reading, self.model.reading())
            )
            raise UserError(
                f"the texts were read with {then}, but the model has {now}; load it as it was then"
            )
        vocabulary = self.vocabulary.fresh()
        if how.splitting is not None:
            vocabulary.split(how.splitting)
        vocabulary.include(how.words)
        return Reader(
            self.model,
            vocabulary,
            how.method,
            memory=memory,
            k=how.k,
            update_every=how.update_every,
            settings=asked,
            defaults=how.settings,
            name=self._setup.model,
            training=self._training,
        )

    def begin(self) -> None:
        """Move to the beginning of a text; the reader keeps what it learned.

        There a method with a gate trusts its memory about as much as the model, and more or less
        with every text whose first tokens the memory did or did not help to predict, until the text
        itself shows which knows better.
        """
        self.journal.began()
        self._stand()

    def _stand(self) -> None:
        self._base.load_stream_state(self._beginning)
        self._last = self._last.new_tensor([self.vocabulary.start])
        self._context.begin()

    def save(self, folder: str | Path) -> None:
        """Save memory, new words and place to a folder, whole or not at all;
        ``reader(memory=folder)`` goes on there.

        Raises:
            UserError: the folder holds something else or cannot be written, the weights changed
                since the model was loaded, or the reader learned a number that is not finite.
        """
        if not isinstance(folder, str | Path):
            raise UserError(f"{folder!r:.60} is not a folder; name one to save to")
        observed, recent = self._context.observed, self._context.recent.latest(self._context.window)
        save_reader(
            Path(folder),
            {
                **self._owner,
                "model_hash": self.model.sha256,
            },  # refused where the weights changed since
            ReaderState(
                self._memory,
                tuple(self.vocabulary.words[: len(self._base.head.weight) - self.vocabulary.known]),
                self._base.stream_state(),
                self._last,
                observed,
                recent,
                self._context.known_shares,
                self._context.known_ngrams,
                self._base.weights(),
                self.vocabulary.splitting,
                self._setup,
                self.journal.record,
            ),
            self.vocabulary.known,
        )

    def __len__(self) -> int:
        return len(self._memory)

    def __repr__(self) -> str:
        return (
            f"Reader({self.method!r}, {len(self):,} entries, {len(self.vocabulary.words):,} new "
            "words)"
        )
