"""A reader: it predicts a text by one method, scores it, and only then learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.drafts import Ahead
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import ScenarioConfig, several, whole
from hebblm.expected import Suggestion, draw, most_probable
from hebblm.memory import build_memory
from hebblm.memory.ngram_rows import contexts_of
from hebblm.memory.ngrams import NGrams
from hebblm.memory.persistence import Owner
from hebblm.models.base import Ids, TrainedModel, device_of
from hebblm.progress import say
from hebblm.ranking import RankedText, ranked
from hebblm.reader_state import ReaderSetup, ReaderState, check_asked, choose, open_reader, save_reader, with_text
from hebblm.reader_text import (
    Progress,
    Text,
    are_documents,
    bytes_of,
    encoded_documents,
    encoded_text,
    in_intervals,
    known_ids,
    reported,
)
from hebblm.scores import Scores
from hebblm.stream_reader import ReaderBase, StreamReader, dynamic_base
from hebblm.text.vocabulary import Encoded, Vocabulary


def _learnable(kind: type[Reader]) -> type[Reader]:
    """Let a class compute outside ``torch.inference_mode``, of whose tensors no later call could learn."""
    for name, value in [*vars(kind).items()]:
        if isfunction(value) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, torch.inference_mode(False)(value))
    return kind


@_learnable
class Reader:
    """Reader of a text, once and in order, that remembers it.

    Every token is predicted from what was learned before its interval; when an interval of ``update_every`` tokens has
    been scored, or a call of :meth:`read` ends, its hidden states and words go into the memory, and words met for the
    first time get a row of zeros in the softmax layer. The base stays as it was trained; by the methods of dynamic
    evaluation a copy of its weights learns from each interval as well.

    Args:
        model: as it was trained; it never changes.
        vocabulary: of the model, to which new words are added.
        method: as :data:`hebblm.METHODS` has it. None for that of the reader saved in ``memory``, or ``mixture+hebb``.
        memory: folder that :meth:`save` wrote, to go on from there; None starts with an empty memory.
        k: neighbours a query. None for that of the saved reader, or 200.
        update_every: most tokens between two updates; 1 learns from each token at once, more tokens take less time.
            None for that of the saved reader, or 50.
        settings: hyper-parameters by dotted name, e.g. ``{"hebb.beta": 0.9}``; the others are as the saved reader had
            them.
        defaults: values by dotted name that hold where neither ``settings`` nor a saved reader has others.
        name: of the model, which is saved with the memory.
        training: returns the ids (T,) that the model was trained on, from which dynamic evaluation's rms rule takes the
            size of gradients.

    Raises:
        UserError: an unknown method or setting, a base that would have to learn for all methods, a memory of another
            model, settings of a memory beside a saved one, or the rms rule without the training text.
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
        asked = settings or {}
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
        self._setup = ReaderSetup(
            self.method, chosen.k, chosen.update_every, values.read_by(self.method), name or opened.setup.model
        )
        self._texts = opened.setup.texts
        self._told_of_loss = False
        if model.keyed:
            METHODS[self.method].check_keys(values.methods)
        self._rule = METHODS[self.method].rule(values.methods)
        self._base = dynamic_base(model, values.dynamic, training) if self.moving else ReaderBase(model.base())
        if vocabulary.splitting is None and opened.splitting is not None:
            vocabulary.split(opened.splitting)
        vocabulary.include(opened.words)
        self._base.grow(len(vocabulary.words))
        opened.check_labels(len(self._base.head.weight), memory)
        self._base.load_weights(opened.weights)
        self._beginning = self._base.stream_state()
        self._last = torch.tensor([vocabulary.start], device=device)
        self._memory = build_memory(model.key_width, values.memory, device) if opened.memory is None else opened.memory
        self._context = Context(
            self._base.head,
            self._memory,
            k=chosen.k,
            train_counts=torch.tensor([*vocabulary.counts, *[0] * len(vocabulary.words)], device=device),
            # None where every text is made of what was there in training
            new_classes=torch.arange(len(vocabulary), device=device) >= vocabulary.known if vocabulary.grows else None,
            window=self._rule.needs.window,
        )
        self._context.learn_shares([self._rule])
        if opened.state is not None:
            self._base.load_stream_state(opened.state)
            self._last = opened.last
            self._context.recall(opened.observed, *opened.recent)
        elif opened.memory is not None:  # a memory by itself: what it holds was read once
            self._context.observed = self._memory.counts(len(vocabulary))
        self._context.recall_ngrams(opened.ngrams)
        if unused := self._context.recall_shares(opened.shares):
            say(f"{memory} holds learned shares that {self.method} does not use here: {'; '.join(unused)}")

    @overload
    def read(  # type: ignore[overload-overlap]
        self, text: Text, *, learn: bool = True, progress: Progress = ...
    ) -> Scores: ...

    @overload
    def read(self, text: Sequence[Text], *, learn: bool = True, progress: Progress = ...) -> list[Scores]: ...

    def read(
        self,
        text: Text | Sequence[Text],
        *,
        learn: bool = True,
        progress: Progress = None,
    ) -> Scores | list[Scores]:
        """Predict, score, then learn a text, going on from the last call, or several documents side by side.

        Documents share memory and counts, and each is read from its beginning with a state and a window of its own: an
        interval of all is predicted and scored, then learned from in their order. Behind them the reader stands at the
        beginning of a text, with the window of the last one. The first string says how all are split into words: at
        punctuation as well as at blanks where that fits the model's own text, which is told.

        Args:
            text: a string, each line break of which is an ``<eos>``, or the ids of known words, (T,); or a list of
                such documents, which are a batch of the base.
            learn: whether it is remembered; otherwise only the place in the text moves on.
            progress: called with the number of tokens done and T after each interval.

        Returns:
            The loss of each token in nats, adapted and not; of documents a list, in their order.

        Raises:
            UserError: no text, an id that the vocabulary does not have, several documents for dynamic evaluation, or a
                progress that cannot be called.
        """
        report = reported(progress)
        if are_documents(text):
            return self._read_documents(cast(Sequence[Text], text), learn, report)
        scores = self._read_on(*encoded_text(self.vocabulary, cast(Text, text), include=learn), learn, report, None)
        if scores.lost and not self._told_of_loss:
            self._told_of_loss = True
            say(
                f"the tokenizer loses at least {100 * scores.lost / scores.bytes:.3g} % of the bytes of this text: "
                "do not compare its bits a byte with another model's"
            )
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
        """Read a text that comes in pieces, of which few are held at once, as :meth:`read` would read all in one call.

        An interval goes on from one piece to the next. Tokens are those of the pieces: those of the text where words
        are split between blanks and pieces end with a line or before a blank. A tokenizer that looks further may split
        a word at such a place otherwise.

        Args:
            pieces: of the text, in order; each is asked for when those before it were read.
            learn: as in :meth:`read`.
            progress: called with the number of tokens done of a part and all of it after each interval.
            name: of the text, which is saved with the memory.
            max_tokens: read only so many tokens; None for all.

        Yields:
            The scores of the text's parts, in order. A word at which a part ends is among those of both, and
            ``goes_on`` of the second part's words says so.

        Raises:
            UserError: as of :meth:`read`, or one string, whose letters are no pieces.
        """
        report = reported(progress)
        most = None if max_tokens is None else whole("max_tokens", max_tokens)
        for encoded, size in in_intervals(self.vocabulary, pieces, self.update_every, include=learn, most=most):
            yield self._read_on(encoded, size, learn, report, name)

    def _read_on(
        self, encoded: Encoded, size: int, learn: bool, progress: Callable[[int, int], None], name: str | None
    ) -> Scores:
        if learn:
            self._texts = with_text(self._texts, size, name)

        def moved(done: int, total: int) -> None:
            self._last = self._last.new_tensor([encoded.ids[done - 1]])
            progress(done, total)

        return self._with(self._base, learn).scores([encoded], [size], self._last, moved)[0]

    def _read_documents(self, texts: Sequence[Text], learn: bool, progress: Callable[[int, int], None]) -> list[Scores]:
        if not len(texts):
            return []
        if self.moving and len(texts) > 1:
            raise UserError(
                f"{self.method} learns from one text at a time, not from {len(texts)} documents side by side; "
                "read them one after the other"
            )
        encoded, sizes = encoded_documents(self.vocabulary, texts, self.update_every, include=learn)
        self.begin()
        if learn:
            self._texts = with_text(self._texts, sum(sizes), None)
        base = self._base
        if len(texts) > 1:
            base = ReaderBase(self.model.base(streams=len(texts)))
            base.grow(len(self._base.head.weight) - len(base.head.weight))
        with self._context.side_by_side(len(texts)):
            try:
                return self._with(base, learn).scores(encoded, sizes, self._last, progress)
            finally:
                self._base.grow(len(base.head.weight) - len(self._base.head.weight))
                self._context.set_head(self._base.head)
                self.begin()

    def _with(self, base: ReaderBase, learn: bool) -> StreamReader:
        return StreamReader(base, self._context, self._rule, self.update_every, self.vocabulary.unknown, learn)

    def begin(self) -> None:
        """Stand at the beginning of a text; what was learned stays."""
        self._base.load_stream_state(self._beginning)
        self._last = self._last.new_tensor([self.vocabulary.start])
        self._context.begin()

    @torch.no_grad()
    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (N, V) in nats, adapted and of the base as it is, behind hidden states (N, D).

        Raises:
            UserError: states of another width; where the memory has keys of another layer, these stand behind them.
        """
        width = self._base.head.weight.shape[1] + (self.model.key_width if self.model.keyed else 0)
        if hidden.ndim != 2 or hidden.shape[1] != width:
            raise UserError(f"states of shape {tuple(hidden.shape)} are not (N, {width}), as this model gives them")
        batch = self._batch(hidden)
        return self._rule.log_probs(batch), batch.log_probs

    def log_probs(self, ids: Sequence[int] | Tensor, *, last: int = 1) -> Tensor:
        """Return what is expected behind the last tokens of a text of its own; learns nothing.

        Args:
            ids: (T,) from its beginning, nothing before them.
            last: N, behind how many of them.

        Returns:
            (N, V) adapted log-probabilities, nats.

        Raises:
            UserError: no ids, one that the vocabulary does not have, or ``last`` below 0 or above their number.
        """
        found = known_ids(self.vocabulary, ids, "row of ids; reader.vocabulary.encode(TEXT, include=False).ids are one")
        if not found or whole("last", last, 0) > len(found):
            raise UserError(f"last = {last} must be at most the number of ids, {len(found)}, and that at least 1")
        with self._base.aside():
            self._base.load_stream_state(self._beginning)
            hidden = self._base.read(self._known(self._last.new_tensor(found)))
        first, rows = len(hidden) - last, []
        with torch.no_grad():
            for begin in range(first, len(hidden), self.update_every):
                part = hidden[begin : begin + self.update_every]
                rows.append(self._rule.log_probs(self._batch(part, found[: begin + len(part)])))
        return torch.cat(rows) if rows else hidden.new_zeros(0, len(self._base.head.weight))

    @torch.no_grad()
    def suggest(self, context: str = "", n: int = 5) -> list[Suggestion]:
        """Return the most probable next words after what was read and some further words; learns nothing.

        Args:
            context: read on from the present place, for this question alone.
            n: number of words; ``<unk>``, which is none, is left out.

        Returns:
            The words, most probable first, each with its probability with and without adaptation.

        Raises:
            UserError: n below 1, or a context that is no string.
        """
        with self._base.aside():
            ids = self._ids(context)
            hidden = self._base.read(ids)
        batch = self._batch(hidden[-1:], self._after(ids))
        adapted, base = self._rule.log_probs(batch)[0].exp(), self._base.trained_log_probs(batch)[0].exp()
        return most_probable(adapted, base, self.vocabulary, n)

    def generate(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 20,
        temperature: float = 1.0,
        seed: int = ScenarioConfig.seed,
        until: str | Sequence[str] = (),
        draft: bool = False,
    ) -> str:
        """Return words drawn one after the other behind a prompt, which goes on from what was read; learns nothing.

        Args:
            prompt: read on from the present place, for this answer alone.
            max_new_tokens: how many are drawn.
            temperature: of the draw, ``P^(1/T)``; 0 takes the most probable word each time.
            seed: of the draw.
            until: strings before which the answer ends.
            draft: let the base read ahead what followed the same words before, for methods that count n-grams. The
                answer is the same but for rounding; it takes fewer passes where the text repeats.

        Raises:
            UserError: a temperature that is negative or infinite, a number of words or a seed that is negative or no
                whole number, a prompt that is no string, drafts where no n-grams are counted, or of a model whose state
                cannot go back.
        """
        past = self._context.stream_states[0].history[::-1].tolist()
        following = Ahead(self._base, self._expected, past, self._drafting(draft))
        with self._base.aside(), torch.no_grad():
            return draw(
                following,
                self._ids(prompt),
                self.vocabulary,
                most=whole("max_new_tokens", max_new_tokens, 0),
                temperature=temperature,
                seed=whole("seed", seed, 0),
                until=several("until", until),
            )

    def rank(
        self,
        alternatives: Sequence[str],
        before: str = "",
        *,
        prior: Sequence[float] | None = None,
        weight: float = 1.0,
    ) -> list[RankedText]:
        """Return alternatives for the same place in the text, best first; learns nothing.

        Nothing is learned within an alternative either: all its tokens are predicted from the memory as it stands. A
        word without a row is charged as ``<unk>`` and spelled, 8 bits a byte. The end of an alternative is not charged:
        let each end with a line break where it ends a line, or with the text that follows.

        Args:
            alternatives: texts, each of one token or more.
            before: the text directly before each, a blank at its end included; it goes on from what was read.
            prior: what speaks for each besides, higher for better, as the score of a recogniser; None for nothing.
            weight: of the prior, which is added to the log-probability in nats.

        Returns:
            Each with its score, and its log-probability adapted and not, nats; equal scores in the order given.

        Raises:
            UserError: no alternatives, one without a token, a number of priors that is not theirs, or a prior or weight
                that is not finite.
        """
        return ranked(self._with(self._base, False), self.vocabulary, self._last, alternatives, before, prior, weight)

    def save(self, folder: str | Path) -> None:
        """Write memory, new words and place to a folder, whole or not at all; ``reader(memory=folder)`` goes on there.

        Raises:
            UserError: the folder holds something else, or cannot be written, or the weights changed since the model was
                loaded, or what was learned is not finite.
        """
        if not isinstance(folder, str | Path):
            raise UserError(f"{folder!r:.60} is no folder; name one to save to")
        observed, recent = self._context.observed, self._context.recent.latest(self._context.window)
        save_reader(
            Path(folder),
            {**self._owner, "model_hash": self.model.sha256},  # refused where the weights changed since
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
                replace(self._setup, texts=self._texts),
            ),
            self.vocabulary.known,
        )

    def __len__(self) -> int:
        return len(self._memory)

    def __repr__(self) -> str:
        return f"Reader({self.method!r}, {len(self):,} entries, {len(self.vocabulary.words):,} new words)"

    def _expected(self, hidden: Tensor, text: Sequence[int]) -> Tensor:
        """Log-probabilities (V,) behind a state (1, D) and a text."""
        return self._rule.log_probs(self._batch(hidden, text))[0]

    def _drafting(self, draft: bool) -> NGrams | None:
        """Counts that drafts come from, None where none are made."""
        if draft and self._context.ngrams is None:
            raise UserError(
                f"{self.method} counts no n-grams, which drafts come from; use {self.method}+ngram, or leave draft out"
            )
        return self._context.ngrams if draft else None

    def _batch(self, hidden: Tensor, text: Sequence[int] | None = None) -> EvalBatch:
        """A mini-batch of states (N, D); ``text`` ends with the token that the last one follows."""
        contexts, ngrams = None, self._context.ngrams
        if ngrams is not None and text is not None:
            contexts = contexts_of(np.array([*text, 0]), len(text) + 1 - len(hidden), ngrams.order)
        states = hidden.to(self._last.device, self._base.head.weight.dtype)
        return EvalBatch(states, self._context, contexts=contexts)

    def _after(self, ids: Tensor) -> list[int]:
        """The last tokens that were read, as many as n-grams look at, then ``ids`` without its first, which is one."""
        past = self._context.stream_states[0].history[::-1]
        return [*past.tolist(), *ids[1:].tolist()]

    def _ids(self, text: str) -> Tensor:
        """The last token read and those of a text behind it (N,); new words read ``<unk>``."""
        if not isinstance(text, str):
            raise UserError(f"{text!r:.60} is no text; name a string")
        bytes_of(text)
        ids = self._last.new_tensor(self.vocabulary.encode(text, include=False).ids)
        return torch.cat([self._last, self._known(ids)])

    def _known(self, ids: Tensor) -> Tensor:
        """Ids (N,) with ``<unk>`` for words whose reading was broken off: they have an id, but no row yet."""
        return self._with(self._base, False).known(ids, len(self._base.head.weight))
