"""The session of a reader: one method over one base, and the place in the text where it stands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import STEP, Block
from hebblm.adapt.context import Context, StreamState
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import AnyMemory, build_memory
from hebblm.memory.ngram_rows import contexts_of
from hebblm.models.base import Ids, TrainedModel, device_of
from hebblm.online.drawing import Answer, PieceAnswer, WordAnswer
from hebblm.online.expected import WordForms
from hebblm.online.layout import Layout
from hebblm.online.prompts import Prompt
from hebblm.online.session import Losses, OnlineSession, Unit
from hebblm.online.text import TextSource, TextStreams
from hebblm.online.vocabulary import UnknownVocabulary
from hebblm.reader.base import BaseAndTrained, dynamic_base
from hebblm.reader.checkpoint import ReaderState
from hebblm.reader.config import OpenedConfig
from hebblm.reader.history import History
from hebblm.reader.inputs import check_text
from hebblm.reader.scores import Scores
from hebblm.runtime.progress import log
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords
from hebblm.text.vocabulary import Encoded, Vocabulary
from hebblm.text.words import spelled_bytes

KEPT_NUMBERS = 8 * 2**20  # log-probabilities that are kept of the rows after one place, 32 MiB


class ReaderSession:
    """One method that reads texts and learns, and the place where it stands.

    Args:
        model: the trained model, which never changes.
        vocabulary: the model's, with the new words.
        config: method, update interval and neighbours.
        values: hyper-parameters.
        saved: state of a saved reader to go on from; the default begins anew.
        training: returns the ids (T,) that the model was trained on; None if not known.
        memory: folder of the saved reader, for messages.
    """

    def __init__(
        self,
        model: TrainedModel,
        vocabulary: Vocabulary,
        config: OpenedConfig,
        values: Hyperparameters,
        saved: ReaderState,
        *,
        training: Callable[[], Ids] | None = None,
        memory: object = None,
    ) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.method, self.update_every = config.method, config.update_every
        method, device = METHODS[config.method], device_of(model)
        self.base = BaseAndTrained(model.base())
        if method.uses_dynamic_base:
            self.base = dynamic_base(model, values.dynamic, training)
        if vocabulary.splitting is None and saved.splitting is not None:
            vocabulary.split(saved.splitting)
        vocabulary.include(saved.words)
        self.base.grow(len(vocabulary.words))
        saved.check_labels(len(self.base.head.weight), memory)
        self._text_start = self.base.stream_state()
        self.last = torch.tensor([vocabulary.start], device=device)  # (1,) the last token read
        self.source = TextSource(self.base, UnknownVocabulary(vocabulary.unknown))
        predictor = method.predictor(values.methods)
        counts = [*vocabulary.counts, *[0] * len(vocabulary.words)]
        new_classes = None  # where no text has words that training did not have
        if vocabulary.grows:
            new_classes = torch.arange(len(vocabulary), device=device) >= vocabulary.known
        store = saved.memory
        if store is None:
            store = build_memory(model.key_width, values.memory, device)
        context = Context(
            self.base.head,
            store,
            k=config.k,
            train_counts=torch.tensor(counts, device=device),
            new_classes=new_classes,
            window=predictor.requirements.window,
            # A text's new words are rows of the head, and a dynamic base moves all rows. Otherwise
            # keys keep their exact normalisers. Those that MbPA estimates depend on a sample of
            # classes, which the rounding of a state can change.
            fixed=not (method.uses_dynamic_base or vocabulary.grows),
        )
        self.online = OnlineSession(self.source, [context], {self.method: predictor})
        self._load(saved, memory)

    def _load(self, saved: ReaderState, memory: object) -> None:
        """Go on from the state of a saved reader, as far as there is one."""
        context = self.context
        context.load_ngrams(saved.ngrams)
        if saved.session is None:
            if saved.memory is not None:  # a memory alone: each of its entries was read once
                context.observed = saved.memory.counts(len(self.vocabulary))
            context.begin()
            return
        self.last = saved.last
        if unused := self.online.load_state_dict(saved.session):
            log(
                f"{memory} holds learned shares that {self.method} does not use here: "
                f"{'; '.join(unused)}"
            )

    def state(self, config: OpenedConfig, record: History) -> ReaderState:
        """Return the state to save, from which a reader of another method can go on too."""
        rows, ngrams = len(self.base.head.weight), self.context.ngrams
        return ReaderState(
            self.memory,
            words=tuple(self.vocabulary.words[: rows - self.vocabulary.known]),
            session=self.online.state_dict(),
            last=self.last,
            ngrams={} if ngrams is None else ngrams.state_dict(),
            splitting=self.vocabulary.splitting,
            config=config,
            record=record,
        )

    @property
    def context(self) -> Context:
        """Memory, counts and mixture weights."""
        return self.online.contexts[0]

    @property
    def memory(self) -> AnyMemory:
        return self.context.memory

    @property
    def predictor(self) -> Predictor:
        """The method, which predicts from a mini-batch."""
        return self.online.predictors[self.method]

    @property
    def uses_dynamic_base(self) -> bool:
        return METHODS[self.method].uses_dynamic_base

    # Reading

    def begin_text(self) -> None:
        """Move to the beginning of a text."""
        self.base.load_stream_state(self._text_start)
        self.last = self.last.new_tensor([self.vocabulary.start])
        self.context.begin()

    @contextmanager
    def at_text_start(self) -> Iterator[None]:
        """Put the base at the beginning of a text in the block; mixture weights stay as they
        are.
        """
        with self.base.preserve_state(), self.context.preserve_state():
            self.base.load_stream_state(self._text_start)
            yield

    def snapshot(self) -> ReaderSession:
        """Return a session with a copy of all that was learned, at the beginning of a text.

        What either learns from then on does not change the other. The model is the same one.

        Raises:
            UserError: the base learns: its weights cannot be shared.
        """
        if self.uses_dynamic_base:
            raise UserError(
                f"{self.method} changes the weights of the model, so questions cannot be answered "
                "from a copy; choose a method whose base stays as trained, such as best"
            )
        context = self.context
        # shared: the model's own tensors, which never change, and the names of what is learned
        shared = [context.head, context.train_counts, context.new_classes, *context.learners]
        memo = {id(part): part for part in shared if part is not None}
        return self._over(self.vocabulary.snapshot(), copy.deepcopy(context, memo))

    def another(self) -> ReaderSession:
        """Return a session over the same memory, at the beginning of a text; it must not learn."""
        context = copy.copy(self.context)
        context.stream_states = [copy.copy(state) for state in context.stream_states]
        return self._over(self.vocabulary, context)

    def _over(self, vocabulary: Vocabulary, context: Context) -> ReaderSession:
        """Return a session with a base of its own over what a context has learned."""
        other = copy.copy(self)
        other.vocabulary = vocabulary
        other.__dict__.pop("word_forms", None)  # those of the words until now
        other.base = BaseAndTrained(self.model.base())
        other.base.grow(len(context.head.weight) - len(other.base.head.weight))
        other.source = TextSource(other.base, self.source.vocabulary)
        other.online = OnlineSession(other.source, [context], {self.method: self.predictor})
        other.begin_text()
        return other

    @contextmanager
    def as_batch(self, count: int) -> Iterator[ReaderSession]:
        """Yield a session that reads several documents at once; then stand at the beginning of a
        text, with the window of the last document.
        """
        session = copy.copy(self)
        if count > 1:
            session.base = BaseAndTrained(self.model.base(streams=count))
            session.base.grow(len(self.base.head.weight) - len(session.base.head.weight))
            session.source = TextSource(session.base, self.source.vocabulary)
            session.online = self.online.over(session.source)
        with self.context.as_streams(count):
            try:
                yield session
            finally:
                self.base.grow(len(session.base.head.weight) - len(self.base.head.weight))
                self.context.set_head(self.base.head)
                self.begin_text()

    def read(
        self,
        texts: Sequence[Encoded],
        sizes: Sequence[int],
        progress: Callable[[int, int], None],
        *,
        learn: bool,
    ) -> list[Scores]:
        """Return the losses of each text's tokens, adapted and not; learn after each interval.

        Args:
            texts: as many as the base reads at once.
            sizes: bytes of each.
            progress: called after each interval with the number of tokens done and of all.
            learn: whether anything is remembered.
        """
        lengths = [len(text.ids) for text in texts]
        total, every = sum(lengths), self.update_every
        layout = Layout(tuple(accumulate([0, *lengths[:-1]])), tuple(lengths))
        ids = self.last.new_tensor([index for text in texts for index in text.ids])  # (T,)
        before = [torch.cat([self.last, of_text])[:-1] for of_text in torch.split(ids, lengths)]
        streams = TextStreams(layout, torch.cat(before), ids, every, write=learn)
        adapted, plain = (torch.zeros(total, dtype=torch.float32, device="cpu") for _ in range(2))
        new = torch.zeros(total, dtype=torch.bool, device="cpu")  # (T,)
        for begin, text in zip(layout.begins, texts, strict=True):
            new[[begin + place for place in text.unknown]] = True

        def record(unit: Unit, losses: Losses) -> None:
            assert unit.places is not None, "units of a text have places"
            places, targets = torch.from_numpy(unit.places), self.source.readable(unit.labels)
            adapted[places] = losses[self.method].float().cpu()
            plain[places] = self.base.trained_losses(unit.batch, targets).float().cpu()
            new[places] |= (unit.labels >= len(unit.batch.head.weight)).cpu()

        for start in range(0, layout.longest, every):
            stop = min(start + every, layout.longest)
            with self._undone_if_interrupted():
                states = streams.read(self.source, start, stop)
                units = streams.units([self.context], states, start, start, stop)
                self.online.interval(units, record, learn=learn)
            if len(texts) == 1:
                self.last = self.last.new_tensor([texts[0].ids[stop - 1]])
            progress(sum(min(stop, length) for length in lengths), total)
        parts = (torch.split(rows, lengths) for rows in (adapted, plain, new))
        return [
            _scores(text, size, nll, flags, unadapted=_scores(text, size, base, flags))
            for text, size, nll, base, flags in zip(texts, sizes, *parts, strict=True)
        ]

    @contextmanager
    def _undone_if_interrupted(self) -> Iterator[None]:
        """Move the base back to the beginning of an interval that is interrupted."""
        before = self.base.stream_state()
        try:
            yield
        except BaseException:  # Ctrl-C too: the same text is read again from here
            self.base.load_stream_state(before)
            self.context.set_head(self.base.head)
            raise

    # Asking, which teaches it nothing

    def ids(self, text: str) -> Tensor:
        """Return ids (N,): the last token read, then those of a text; new words become
        ``<unk>``.
        """
        check_text(text)
        ids = self.last.new_tensor(self.vocabulary.encode(text, include=False).ids)
        return torch.cat([self.last, self.source.readable(ids)])

    def past_with(self, ids: Tensor) -> list[int]:
        """Return as many of the last tokens read as n-grams look at, then ``ids`` (N,) without the
        first, which was read.
        """
        return [*self.past(), *ids[1:].tolist()]

    def past(self) -> list[int]:
        """Return as many of the last tokens read as n-grams look at, the latest last."""
        tokens: list[int] = self.context.stream_states[0].history[::-1].tolist()
        return tokens

    def query(self, hidden: Tensor, text: Sequence[int] | None = None) -> EvalBatch:
        """Return a mini-batch of states (N, D); ``text`` ends with the token that the last state
        follows.
        """
        contexts, ngrams = None, self.context.ngrams
        if ngrams is not None and text is not None:
            contexts = contexts_of(np.array([*text, 0]), len(text) + 1 - len(hidden), ngrams.order)
        return EvalBatch(self._placed(hidden), self.context, contexts=contexts)

    def next_log_probs(self, hidden: Tensor, text: Sequence[int]) -> Tensor:
        """Return log-probabilities (V,) in nats after a state (1, D) and a text."""
        return self.predictor.log_probs(self.query(hidden, text))[0]

    def states_along(self, hidden: Tensor, labels: Tensor) -> list[list[StreamState]]:
        """Return the context's streams after every ten of some labels, and after the last; it
        learns nothing.

        Mixture weights follow the labels, and n-grams pass them.

        Args:
            hidden: (N, D) states.
            labels: (N,) int64 that follow them.
        """
        context = self.context
        # No row sees the others, for none of them is learned; nor does a question.
        block, contexts = Block.of(labels, len(labels), written=False), None
        if context.ngrams is not None:
            contexts = context.ngram_contexts(labels.cpu().numpy(), None)
        batch = EvalBatch(self._placed(hidden), context, block, contexts=contexts)
        shares = batch.shares_along(labels)
        states: list[list[StreamState]] = []
        with context.preserve_state():
            for number, weights in enumerate(shares):
                context.update_weights({0: weights})
                if context.ngrams is not None:
                    context.pass_labels(labels[number * STEP : (number + 1) * STEP])
                states.append([copy.copy(state) for state in context.stream_states])
        return states

    @cached_property
    def pieces(self) -> PieceTexts | None:
        """The texts of the pieces; None for a model of words."""
        return PieceTexts(self.vocabulary) if isinstance(self.vocabulary, Subwords) else None

    @cached_property
    def word_forms(self) -> WordForms:
        """The forms of the words of a model of words."""
        return WordForms(self.vocabulary)

    def text_before(self) -> str:
        """Return the end of the text read so far, "" at the beginning of a text."""
        pieces, last = self.pieces, int(self.last)
        if pieces is None or last in pieces.special or last == self.vocabulary.start:
            return ""
        return pieces.data[last].decode(errors="ignore")

    def answer(self, prompt: Prompt, ids: Tensor) -> Answer:
        """Return how tokens read as an answer to a prompt, whose context has the ids (N,)."""
        if self.pieces is None:
            return WordAnswer(self.vocabulary, int(ids[-1]), prompt)
        return PieceAnswer(
            self.vocabulary, self.pieces, prompt, begins=int(ids[-1]) == self.vocabulary.start
        )

    def _placed(self, hidden: Tensor) -> Tensor:
        return hidden.to(self.last.device, self.base.head.weight.dtype)


class Continuations:
    """Expectation after rows of pieces that follow the text read so far; the base reads all rows at
    once.

    The latest rows are kept, for the next letter of a word asks for most of them again.

    Args:
        session: its base stands at that place.
        past: the last tokens read.
        first: log-probabilities (V,) in nats at that place, adapted and not.
    """

    def __init__(
        self, session: ReaderSession, past: Sequence[int], first: tuple[Tensor, Tensor]
    ) -> None:
        self._session, self._past = session, past
        self._known: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {(): first}
        self._most = max(1, KEPT_NUMBERS // (2 * len(first[0])))

    def __call__(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (R, V) in nats after rows of pieces, adapted and not."""
        unknown = [row for row in rows if row not in self._known]
        computed = dict(self._known)
        if unknown:
            adapted, trained = self._computed(unknown)
            computed |= dict(zip(unknown, zip(adapted, trained, strict=True), strict=True))
        for row in rows:
            if row:  # the latest at the end
                self._known.pop(row, None)
                self._known[row] = computed[row]
        while len(self._known) > self._most + 1:
            _, oldest, *_ = self._known
            del self._known[oldest]
        answers = [computed[row] for row in rows]
        return (
            torch.stack([adapted for adapted, _ in answers]),
            torch.stack([trained for _, trained in answers]),
        )

    def _computed(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        base, context = self._session.base, self._session.context
        after = base.continuations(
            [torch.tensor(row, device=base.head.weight.device) for row in rows]
        )
        states, trained = (
            None if hidden is None else torch.stack([row[-1] for row in hidden]) for hidden in after
        )
        assert states is not None
        batch = EvalBatch.after(rows, states.to(base.head.weight.dtype), context, self._past)
        return self._session.predictor.log_probs(batch), base.trained_log_probs(batch, trained)


def _scores(
    text: Encoded, size: int, nll: Tensor, new: Tensor, *, unadapted: Scores | None = None
) -> Scores:
    spelled = sum(
        spelled_bytes(token) for token, flag in zip(text.tokens, new.tolist(), strict=True) if flag
    )
    return Scores(text.tokens, nll, new, size, text.words, spelled, text.lost, unadapted)
