"""A reader: it predicts a text by one method, scores it, and only then learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast, overload

from torch import Tensor

from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.scenario_config import ScenarioConfig, whole_number
from hebblm.memory.persistence import Owner
from hebblm.models.base import Ids, TrainedModel, device_of
from hebblm.online.drawing import Answer, Drawn, Sampling
from hebblm.online.effort import LEAST, SearchEffort
from hebblm.online.expected import Suggestions
from hebblm.reader.checkpoint import ReaderState, open_reader, save_reader
from hebblm.reader.config import OpenedConfig, ReaderConfig
from hebblm.reader.explain import Explanation, explain
from hebblm.reader.generate import Wanted, complete, generate
from hebblm.reader.history import (
    Journal,
    LearnedDocument,
    ReaderOpened,
    documents,
    laid_out,
)
from hebblm.reader.inputs import (
    Intervals,
    Progress,
    Spelled,
    Text,
    Texts,
    are_documents,
    encoded_text,
    followed,
    known_ids,
    name_of,
    named,
    pieces_of,
    reported,
)
from hebblm.reader.own_text import TextStart
from hebblm.reader.predict import predict, text_log_probs, token_losses
from hebblm.reader.reading import TextInParts, read_documents
from hebblm.reader.replay import check_still, read_again, without_documents, without_word
from hebblm.reader.rerank import RankedText, rank
from hebblm.reader.scores import Scores
from hebblm.reader.seat import Seat
from hebblm.reader.session import ReaderSession
from hebblm.reader.suggest import suggest
from hebblm.runtime.turns import turn
from hebblm.text.fitting import Chosen, tell_loss
from hebblm.text.vocabulary import Vocabulary

DEFAULT_SAMPLING = Sampling()


class Reader:
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

    def __init__(  # noqa: PLR0913 - a reader is opened in one call, and most have defaults
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
        with turn(self):
            asked = ReaderConfig(
                method=method,
                k=k,
                update_every=update_every,
                settings=cast(dict[str, Any], settings or {}),
                model=name,
            )
            asked.check(memory)
            how = vocabulary.splitting, tuple(vocabulary.words)  # before the saved reader's
            self.model = model
            self._owner = Owner(model_hash=model.sha256, dictionary_hash=vocabulary.hash())
            self._training = training
            self._told_of_loss = False
            saved = ReaderState()
            if memory is not None:
                saved = open_reader(Path(memory), self._owner, device_of(model))
            self.config, values = asked.over(saved.config, defaults or {}, memory)
            opening = _opening(self.config, values, *how, model)
            self.journal = Journal(vocabulary, saved.record, opening)
            if model.keyed:
                METHODS[self.method].check_keys(values.methods)
            self.session = ReaderSession(
                model, vocabulary, self.config, values, saved, training=training, memory=memory
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary, with the new words."""
        return self.session.vocabulary

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.config.method

    @property
    def update_every(self) -> int:
        """Most tokens between two updates."""
        return self.config.update_every

    @property
    def uses_dynamic_base(self) -> bool:
        """Whether a copy of the model's weights learns as well."""
        return METHODS[self.method].uses_dynamic_base

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
        document. The first string decides how all texts are split into words: at spaces, or at
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
        with turn(self), followed(progress) as report:
            if isinstance(text, Mapping) or are_documents(text):
                names, texts = named(cast(Texts, text), name)
                several = read_documents(
                    self.session, self.journal, names, texts, learn=learn, progress=report
                )
                self._tell_loss(several)
                return several
            given = cast(Text, text)
            kept = given if isinstance(given, str | Spelled) else None
            reading = TextInParts(name_of(name), learn, kept, report)
            scores = reading.read(
                self.session, self.journal, partial(encoded_text, text=given, include=learn)
            )
            assert scores is not None, "a text is a part"
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
        the whole text if words are split at spaces and pieces end with a line or before a space. A
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
        most = None if max_tokens is None else whole_number("max_tokens", max_tokens)
        intervals = Intervals(self.update_every, include=learn, most=most)
        reading = TextInParts(name_of(name), learn, intervals.texts, reported(progress))
        # other threads may ask while the text comes, and between its parts
        for piece in pieces_of(pieces):
            with turn(self):
                scores = reading.read(self.session, self.journal, partial(intervals.after, piece))
            if scores is not None:
                yield scores
            if intervals.full:
                break
        with turn(self):
            scores = reading.read(self.session, self.journal, intervals.rest)
            if most is None or reading.tokens < most:
                reading.end()
        if scores is not None:
            yield scores

    def _tell_loss(self, scores: Sequence[Scores]) -> None:
        """Print once what the tokenizer loses of a text, or of documents that are read together."""
        lost = sum(score.lost for score in scores)
        if lost and not self._told_of_loss:
            self._told_of_loss = True
            tell_loss("this text", lost, sum(score.bytes for score in scores))

    @property
    def _beginning(self) -> TextStart | None:
        """The beginning of a text, if the reader stands at one."""
        return TextStart(self.session) if self.journal.begins else None

    def predict(
        self, hidden: Tensor, texts: Sequence[Sequence[int]] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (N, V) in nats after hidden states (N, D): the adapted ones and
        the base's own.

        Args:
            hidden: the states; where the memory takes its keys from another layer, each row holds
                state, then key.
            texts: the N rows of ids that led to them, for methods that count n-grams; None for the
                text read last.

        Raises:
            UserError: states of another width, or another number of texts.
        """
        with turn(self):
            return predict(self.session, hidden, texts)

    def log_probs(self, ids: Sequence[int] | Tensor, *, last: int = 1) -> Tensor:
        """Predict the token after each of the last tokens of a text of its own; learns nothing.

        The tokens before show how far to trust each part of the method on this text: shares that
        learn follow them.

        Args:
            ids: (T,) the text from its beginning, with nothing before it.
            last: N, the number of tokens at the end to predict after.

        Returns:
            (N, V) adapted log-probabilities in nats.

        Raises:
            UserError: no ids, an id that the vocabulary does not have, or ``last`` below 0 or above
                T.
        """
        with turn(self):
            return text_log_probs(self.session, ids, last)

    def token_losses(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return the losses of the tokens of a text of its own, as :meth:`log_probs` has them;
        learns nothing.

        It takes no room for the log-probabilities of all other tokens.

        Args:
            ids: (T,) the text from its beginning, with nothing before it.

        Returns:
            (T - 1,) float64 losses in nats of all tokens but the first.

        Raises:
            UserError: no ids, or an id that the vocabulary does not have.
        """
        with turn(self):
            return token_losses(self.session, ids)

    def suggest(
        self,
        context: str = "",
        n: int = 5,
        *,
        typed: str = "",
        budget: int | None = None,
        least: float = LEAST,
    ) -> Suggestions:
        """Return the most probable next words after the text read so far and a context; learns
        nothing.

        At the beginning of a text the context itself shows how far to trust each part of the
        method.

        A word ends before a space or a line break. Forms that differ only in punctuation that
        follows are one word. A model of pieces finds whole words by a search that ends when no
        other word can belong to the list. In a script without spaces, words are those of ICU's
        dictionaries if ``icu4py`` is installed, else runs of characters.

        Args:
            context: text after the present place, read for this call only. Its last word is
                complete.
            n: number of words; ``<unk>`` is not a word and is left out.
            typed: first letters of the word, which follow the context and its space.
            budget: most beginnings of words that a model of pieces follows; None for as many as it
                takes.
            least: a model of pieces leaves out words that are less probable than this.

        Returns:
            The words, most probable first, each with its probability with and without adaptation,
            and the text to insert after the context and the typed letters. ``bound`` is the most
            that any other word can have. ``exact`` is True if no other word can belong to the
            list.

        Raises:
            UserError: n or budget is below 1, ``least`` is not a probability below 1, context or
                typed letters are not strings, or the letters contain a space.
        """
        with turn(self):
            return suggest(
                self.session,
                context,
                n,
                typed=typed,
                effort=SearchEffort(budget, least),
                beginning=self._beginning,
            )

    def explain(
        self,
        context: str = "",
        n: int = 5,
        *,
        typed: str = "",
        budget: int | None = None,
        least: float = LEAST,
    ) -> list[Explanation]:
        """Explain the words that :meth:`suggest` suggests; learns nothing.

        Args:
            context: as for :meth:`suggest`.
            n: number of words.
            typed: as for :meth:`suggest`.
            budget: as for :meth:`suggest`.
            least: as for :meth:`suggest`.

        Returns:
            The words of :meth:`suggest`, each with the share of its probability that every part of
            the method gives, and the three memory entries that weigh most. For a word of several
            pieces these are those of its first piece times the probability of the rest.

        Raises:
            UserError: as for :meth:`suggest`.
        """
        with turn(self):
            return explain(
                self.session,
                laid_out(self.journal.record),
                context,
                n,
                typed=typed,
                effort=SearchEffort(budget, least),
                beginning=self._beginning,
            )

    def generate(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 20,
        temperature: float = 1.0,
        seed: int = ScenarioConfig.seed,
        until: str | Sequence[str] = (),
        draft: bool = False,
        top_k: int | None = None,
        top_p: float = 1.0,
    ) -> str:
        """Generate text after the text read so far and a prompt, one random token after the other;
        learns nothing.

        The answer follows the prompt directly: the two joined are the whole text. The letters after
        the prompt's last space may be the beginning of a longer word, which the answer then goes on
        with.

        Args:
            prompt: text after the present place, read for this call only.
            max_new_tokens: number of tokens to draw: words, or pieces of words.
            temperature: T in ``P^(1/T)``; 0 takes the most probable token each time.
            seed: of the random draw.
            until: strings that end the answer; the answer does not contain them.
            draft: whether the base reads ahead what followed the same words before, for methods
                that count n-grams. The answer is the same up to rounding; it takes fewer passes
                where the text repeats.
            top_k: draw among so many most probable tokens; None among all.
            top_p: draw among the fewest most probable tokens with this probability together.

        Raises:
            UserError: a temperature that is negative or infinite, a number of tokens or a seed that
                is negative or not a whole number, a ``top_k`` below 1, a ``top_p`` that is not
                above 0 and at most 1, a prompt that is not a string, drafts with a method that
                counts no n-grams, or with a model whose state cannot go back.
        """
        wanted = Wanted(
            most=max_new_tokens,
            sampling=Sampling(temperature, seed, top_k, top_p),
            until=until,
            draft=draft,
        )
        with turn(self):
            beginning = self._beginning
            if beginning is not None and not self.uses_dynamic_base:
                # The prompt is read twice: before its last word, and with what that word became.
                beginning = Seat(self.session.another())
            steps = generate(self.session, prompt, wanted, beginning)
            return "".join(step.text for step in steps)

    def stream(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 20,
        sampling: Sampling = DEFAULT_SAMPLING,
        until: str | Sequence[str] = (),
        top: int | None = None,
    ) -> Iterator[Drawn]:
        """Generate text as :meth:`generate` does, and give each token as soon as it is drawn.

        The texts of the steps join to the answer; none of them ends within a character. At the
        beginning of a text the steps come from a copy of what the reader has learned, so that it
        may go on reading between them. Within a text the whole answer is drawn first.

        Args:
            prompt: as for :meth:`generate`.
            max_new_tokens: number of tokens to draw.
            sampling: how each is drawn.
            until: strings that end the answer; the answer does not contain them.
            top: how many of the most probable tokens each step lists; None for steps without
                log-probabilities.

        Yields:
            A step for each token with its adapted log-probability in nats, then one that draws none
            and says why the answer ends.

        Raises:
            UserError: as for :meth:`generate`.
        """
        wanted = Wanted(most=max_new_tokens, sampling=sampling, until=until, top=top)
        with turn(self):
            if not self.journal.begins or self.uses_dynamic_base:
                steps = iter([*generate(self.session, prompt, wanted, self._beginning)])
            else:
                session = self.session.snapshot()
                steps = generate(session, prompt, wanted, Seat(session))
        yield from steps

    def complete(
        self,
        ids: Sequence[int],
        *,
        max_new_tokens: int = 20,
        temperature: float = 1.0,
        seed: int = ScenarioConfig.seed,
        until: str | Sequence[str] = (),
        top_k: int | None = None,
        top_p: float = 1.0,
    ) -> str:
        """Generate text after the ids of a text of its own, with nothing before them; learns
        nothing.

        The ids show how far to trust each part of the method, as in :meth:`log_probs`.

        Args:
            ids: (T,) at least one.
            max_new_tokens: as for :meth:`generate`; so are the others.
            temperature: T in ``P^(1/T)``; 0 takes the most probable token each time.
            seed: of the random draw.
            until: strings that end the answer; the answer does not contain them.
            top_k: draw among so many most probable tokens; None among all.
            top_p: draw among the fewest most probable tokens with this probability together.

        Raises:
            UserError: no ids, an id that the vocabulary does not have, or as for :meth:`generate`.
        """
        wanted = Wanted(
            most=max_new_tokens, sampling=Sampling(temperature, seed, top_k, top_p), until=until
        )
        with turn(self):
            known = known_ids(self.vocabulary, ids, "row of ids")
            if not known:
                raise UserError("the prompt has no ids; give at least one")
            answer = Answer(self.vocabulary)
            with self.session.at_text_start():
                steps = complete(TextStart(self.session), known, wanted, answer)
                return "".join(step.text for step in steps)

    def rank(
        self,
        alternatives: Sequence[str],
        before: str = "",
        *,
        prior: Sequence[float] | None = None,
        weight: float = 1.0,
    ) -> list[RankedText]:
        """Rank alternatives for the same place in the text, best first; learns nothing.

        The reader does not learn within an alternative either: it predicts all tokens from the
        memory as it stands. A word without a row costs ``<unk>`` plus its spelling, 8 bits a byte,
        and so does a literal ``<unk>``. The end of an alternative costs nothing: end each with a
        line break where it ends a line, or with the text that follows. An alternative without text,
        for silence, costs a line break: nothing else follows.

        Args:
            alternatives: texts; "" says that nothing follows.
            before: the text directly before each, with the space at its end; it goes on from what
                was read.
            prior: another score of each, higher for better, such as a recogniser's; None for no
                such score.
            weight: factor of the prior, which is added to the log-probability in nats.

        Returns:
            Each with its score and its log-probabilities in nats, with and without adaptation; ties
            in the order given.

        Raises:
            UserError: no alternatives, another number of priors than alternatives, or a prior or
                weight that is not finite.
        """
        with turn(self):
            return rank(self.session, alternatives, before, prior=prior, weight=weight)

    def documents(self) -> list[LearnedDocument]:
        """Return the documents that the reader learned from, in order; those of the memory it began
        with come first.
        """
        with turn(self):
            return documents(self.journal.record)

    def rename(self, name: str, other: str) -> None:
        """Give a document another name, as if it had been read under that one.

        Raises:
            UserError: no such document, or another one has that name.
        """
        with turn(self):
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
            word: a word to forget instead, without spaces; in capital and small letters, not within
                another word.
            replay: True is needed where the base learned from the texts as well.
            progress: called after each interval with the number of tokens done and the number of
                all.

        Raises:
            UserError: no such document or word, a text of a memory that the reader began with, a
                text that is gone, a base that learns and no ``replay``, or a model that now reads
                in another window.
        """
        if bool(names) == (word is not None):
            raise UserError("name documents to forget, or word=... alone")
        with turn(self):
            record = self.journal.record
            if word is not None:
                left = without_word(record, word, self.vocabulary)
            else:
                left = without_documents(record, [*map(name_of, names)])
            check_still(record, whole=replay)
            other = read_again(left, self.journal.opening, self._reopened, reported(progress))
            self.config, self.journal, self.session = other.config, other.journal, other.session
            self._told_of_loss = other._told_of_loss

    def _reopened(self, how: ReaderOpened, memory: Path | None, asked: Mapping[str, Any]) -> Reader:
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
            name=self.config.model,
            training=self._training,
        )

    def begin(self) -> None:
        """Move to the beginning of a text; the reader keeps what it learned.

        There a method with a gate trusts its memory about as much as the model, and more or less
        with every text whose first tokens the memory did or did not help to predict, until the text
        itself shows which knows better.
        """
        with turn(self):
            self.journal.began()
            self.session.begin_text()

    def save(self, folder: str | Path) -> None:
        """Save memory, new words and place to a folder, whole or not at all;
        ``reader(memory=folder)`` goes on there.

        Raises:
            UserError: the folder holds something else or cannot be written, the weights changed
                since the model was loaded, or the reader learned a number that is not finite.
        """
        if not isinstance(folder, str | Path):
            raise UserError(f"{folder!r:.60} is not a folder; name one to save to")
        with turn(self):
            # refused where the weights changed since
            owner: Owner = {**self._owner, "model_hash": self.model.sha256}
            state = self.session.state(self.config, self.journal.record)
            save_reader(Path(folder), owner, state, self.vocabulary.known)

    def __len__(self) -> int:
        return len(self.session.memory)

    def __repr__(self) -> str:
        return (
            f"Reader({self.method!r}, {len(self):,} entries, {len(self.vocabulary.words):,} new "
            "words)"
        )


def _opening(
    config: OpenedConfig,
    values: Hyperparameters,
    splitting: Chosen | None,
    words: tuple[str, ...],
    model: TrainedModel,
) -> ReaderOpened:
    """Return the record of how a reader is opened, with the settings of its memory."""
    memory = {f"memory.{key}": value for key, value in asdict(values.memory).items()}
    return ReaderOpened(
        method=config.method,
        k=config.k,
        update_every=config.update_every,
        settings={**config.settings, **memory},
        splitting=splitting,
        words=words,
        reading=model.reading(),
    )
