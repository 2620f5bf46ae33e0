"""What a reader expects at its place in a text: words, answers, ranks and reasons; asking teaches it nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import isfunction
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.methods import DYNAMIC
from hebblm.adapt.methods.rule import Rule
from hebblm.drafts import Ahead
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import ScenarioConfig, several, whole
from hebblm.expected import Expected, Suggestion, draw, most_probable
from hebblm.explain import Explanation, explained
from hebblm.journal import Journal, laid_out
from hebblm.memory.base import AnyMemory
from hebblm.memory.ngram_rows import Ints, contexts_of
from hebblm.models.base import State, TrainedModel
from hebblm.ranking import RankedText, ranked
from hebblm.reader_text import bytes_of, known_ids
from hebblm.stream_reader import Following, ReaderBase, StreamReader
from hebblm.text.subwords import Subwords
from hebblm.text.vocabulary import Vocabulary
from hebblm.words_ahead import WIDTH, PieceTexts, words_ahead
from hebblm.written import WrittenText

T = TypeVar("T")


def learnable(kind: type[T]) -> type[T]:
    """Make public methods leave ``torch.inference_mode``: no later call could learn from its tensors."""
    for name, value in [*vars(kind).items()]:
        if isfunction(value) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, torch.inference_mode(False)(value))
    return kind


@learnable
class Answers:
    """The questions that a :class:`~hebblm.Reader` answers from where it stands."""

    model: TrainedModel
    vocabulary: Vocabulary
    journal: Journal
    method: str
    moving: bool
    update_every: int
    _base: ReaderBase
    _context: Context
    _memory: AnyMemory
    _rule: Rule
    _beginning: State
    _last: Tensor
    _texts: PieceTexts | None = None

    @torch.no_grad()
    def predict(self, hidden: Tensor, texts: Sequence[Sequence[int]] | None = None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (N, V) in nats after hidden states (N, D): the adapted ones and the base's own.

        Args:
            hidden: the states; where the memory takes its keys from another layer, each row holds state, then key.
            texts: the N rows of ids that led to them, for methods that count n-grams; None for the text read last.

        Raises:
            UserError: states of another width, or another number of texts.
        """
        width = self._base.head.weight.shape[1] + (self.model.key_width if self.model.keyed else 0)
        if hidden.ndim != 2 or hidden.shape[1] != width:
            raise UserError(f"states of shape {tuple(hidden.shape)} are not (N, {width}), as this model gives them")
        if texts is not None and len(texts) != len(hidden):
            raise UserError(f"{len(texts)} texts do not fit {len(hidden)} states; give one text for each state")
        contexts, ngrams = None, self._context.ngrams
        if texts and ngrams is not None:
            contexts = np.concatenate([contexts_of(np.array([*text, 0]), len(text), ngrams.order) for text in texts])
        batch = EvalBatch(hidden.to(self._last.device, self._base.head.weight.dtype), self._context, contexts=contexts)
        return self._rule.log_probs(batch), batch.log_probs

    def log_probs(self, ids: Sequence[int] | Tensor, *, last: int = 1) -> Tensor:
        """Predict the token after each of the last tokens of a text of its own; learns nothing.

        The tokens before show how far to trust each part of the method on this text: shares that learn follow them.

        Args:
            ids: (T,) the text from its beginning, with nothing before it.
            last: N, the number of tokens at the end to predict after.

        Returns:
            (N, V) adapted log-probabilities in nats.

        Raises:
            UserError: no ids, an id that the vocabulary does not have, or ``last`` below 0 or above T.
        """
        found = known_ids(self.vocabulary, ids, "row of ids; reader.vocabulary.encode(TEXT, include=False).ids are one")
        if not found or whole("last", last, 0) > len(found):
            raise UserError(f"last = {last} must lie between 0 and the number of ids, {len(found)}")
        tokens = self._known(self._last.new_tensor(found))
        with self._base.aside():
            self._base.load_stream_state(self._beginning)
            hidden = self._base.read(tokens)
        first, every, rows = len(hidden) - last, self.update_every, []
        places = [*range(0, first, every), *range(first, len(hidden), every), len(hidden)]
        with torch.no_grad(), self._context.aside():
            for begin, end in pairwise(places):
                if begin >= first:
                    rows.append(self._rule.log_probs(self._batch(hidden[begin:end], found[:end])))
                if self._context.learners and end < len(hidden):
                    self._context.begin(found[: begin + 1])
                    labels = tokens[begin + 1 : end + 1]
                    block = Block.of(labels, every, written=False)
                    self._context.follow(self._states(hidden[begin:end], block).shares_after(labels))
        return torch.cat(rows) if rows else hidden.new_zeros(0, len(self._base.head.weight))

    @torch.no_grad()
    def suggest(self, context: str = "", n: int = 5) -> list[Suggestion]:
        """Return the most probable next words after the text read so far and a context; learns nothing.

        A model of pieces suggests whole words, with the blank before them: what is between two blanks, or a line break.
        One without a blank in front goes on with the last word of the context.

        Args:
            context: words after the present place, read for this call only.
            n: number of words; ``<unk>`` is not a word and is left out.

        Returns:
            The words, most probable first, each with its probability with and without adaptation.

        Raises:
            UserError: n below 1, or a context that is not a string.
        """
        return [each.suggestion for each in self._expected(context, n)[1]]

    @torch.no_grad()
    def explain(self, context: str = "", n: int = 5) -> list[Explanation]:
        """Explain the words that :meth:`suggest` suggests; learns nothing.

        Args:
            context: as for :meth:`suggest`.
            n: number of words.

        Returns:
            The words of :meth:`suggest`, each with the share of its probability that every part of the method gives,
            and the three memory entries that weigh most. For a word of several pieces these are those of its first
            piece times the probability of the rest.

        Raises:
            UserError: as for :meth:`suggest`.
        """
        batch, expected = self._expected(context, n)
        written = WrittenText.of(self._memory, laid_out(self.journal.record), self.model)
        return explained(self._rule, batch, expected, self.vocabulary, written, base=DYNAMIC if self.moving else "base")

    def _expected(self, context: str, n: int) -> tuple[EvalBatch, list[Expected]]:
        """Return the query after a context, and the n words that are expected there."""
        n = whole("n", n)
        if isinstance(self.vocabulary, Subwords) and isinstance(context, str):
            context = context.removesuffix(" ")  # whole words begin with it
        with self._following(context) as (batch, following):
            if isinstance(self.vocabulary, Subwords):
                self._texts = self._texts or PieceTexts(self.vocabulary)
                return batch, words_ahead(following, self._texts, n, max(3 * n, WIDTH))
            adapted, base = (log_probs[0].exp() for log_probs in following([()]))
            return batch, most_probable(adapted, base, self.vocabulary, n)

    @contextmanager
    def _following(self, context: str) -> Iterator[tuple[EvalBatch, Following]]:
        """Stand after a context: give the query there, and what is expected after tokens that follow."""
        with self._base.aside():
            ids = self._ids(context)
            hidden = self._base.read(ids)
            past = self._after(ids)
            batch = self._batch(hidden[-1:], past)
            first = self._rule.log_probs(batch)[0], self._base.trained_log_probs(batch)[0]
            yield batch, Following(self._with(self._base, False), past, first)

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
        """Generate text after the text read so far and a prompt, one random word after the other; learns nothing.

        Args:
            prompt: words after the present place, read for this call only.
            max_new_tokens: number of tokens to draw: words, or pieces of words.
            temperature: T in ``P^(1/T)``; 0 takes the most probable word each time.
            seed: of the random draw.
            until: strings that end the answer; the answer does not contain them.
            draft: whether the base reads ahead what followed the same words before, for methods that count n-grams.
                The answer is the same up to rounding; it takes fewer passes where the text repeats.

        Raises:
            UserError: a temperature that is negative or infinite, a number of words or a seed that is negative or not a
                whole number, a prompt that is not a string, drafts with a method that counts no n-grams, or with a
                model whose state cannot go back.
        """
        if draft and self._context.ngrams is None:
            raise UserError(
                f"{self.method} counts no n-grams, so it has no drafts; use {self.method}+ngram, or leave draft out"
            )
        past = self._context.stream_states[0].history[::-1].tolist()
        following = Ahead(self._base, self._next, past, self._context.ngrams if draft else None)
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
        """Rank alternatives for the same place in the text, best first; learns nothing.

        The reader does not learn within an alternative either: it predicts all tokens from the memory as it stands. A
        word without a row costs ``<unk>`` plus its spelling, 8 bits a byte. The end of an alternative costs nothing:
        end each with a line break where it ends a line, or with the text that follows.

        Args:
            alternatives: texts of one token or more.
            before: the text directly before each, with the blank at its end; it goes on from what was read.
            prior: another score of each, higher for better, such as a recogniser's; None for no such score.
            weight: factor of the prior, which is added to the log-probability in nats.

        Returns:
            Each with its score and its log-probabilities in nats, with and without adaptation; ties in the order given.

        Raises:
            UserError: no alternatives, one without a token, another number of priors than alternatives, or a prior or
                weight that is not finite.
        """
        return ranked(self._with(self._base, False), self.vocabulary, self._last, alternatives, before, prior, weight)

    def _next(self, hidden: Tensor, text: Sequence[int]) -> Tensor:
        """Return log-probabilities (V,) after a state (1, D) and a text."""
        return self._rule.log_probs(self._batch(hidden, text))[0]

    def _batch(self, hidden: Tensor, text: Sequence[int] | None = None) -> EvalBatch:
        """Return a mini-batch of states (N, D); ``text`` ends with the token that the last state follows."""
        contexts, ngrams = None, self._context.ngrams
        if ngrams is not None and text is not None:
            contexts = contexts_of(np.array([*text, 0]), len(text) + 1 - len(hidden), ngrams.order)
        return self._states(hidden, contexts=contexts)

    def _states(self, hidden: Tensor, block: Block | None = None, contexts: Ints | None = None) -> EvalBatch:
        states = hidden.to(self._last.device, self._base.head.weight.dtype)
        return EvalBatch(states, self._context, block, contexts=contexts)

    def _after(self, ids: Tensor) -> list[int]:
        """Return as many of the last tokens read as n-grams look at, then ``ids`` without its first, which was read."""
        past = self._context.stream_states[0].history[::-1]
        return [*past.tolist(), *ids[1:].tolist()]

    def _ids(self, text: str) -> Tensor:
        """Return ids (N,): the last token read, then those of a text; new words become ``<unk>``."""
        if not isinstance(text, str):
            raise UserError(f"{text!r:.60} is not a text; give a string")
        bytes_of(text)
        ids = self._last.new_tensor(self.vocabulary.encode(text, include=False).ids)
        return torch.cat([self._last, self._known(ids)])

    def _known(self, ids: Tensor) -> Tensor:
        """Return ids (N,) with ``<unk>`` for words whose reading was interrupted: they have an id, but no row yet."""
        return self._with(self._base, False).known(ids, len(self._base.head.weight))

    def _with(self, base: ReaderBase, learn: bool) -> StreamReader:
        return StreamReader(base, self._context, self._rule, self.update_every, self.vocabulary.unknown, learn)
