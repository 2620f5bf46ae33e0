"""What a reader expects at its place in a text: words, answers, ranks and reasons; asking teaches
it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import isfunction, isgeneratorfunction
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.contract import FirstBatches
from hebblm.adapt.methods import DYNAMIC
from hebblm.adapt.methods.rule import Rule
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import ScenarioConfig, several, whole
from hebblm.memory.base import AnyMemory
from hebblm.memory.ngram_rows import Ints, contexts_of
from hebblm.models.base import State, TrainedModel
from hebblm.online.drawing import Answer, PieceAnswer, WordAnswer, chooser, draw
from hebblm.online.expected import (
    Expected,
    Suggestion,
    Suggestions,
    WordForms,
    begins_with,
    most_probable,
)
from hebblm.online.prompts import Prompt, spelled
from hebblm.online.word_beam import FoundWords, words_ahead
from hebblm.reader.base import Following, ReaderBase, StreamReader
from hebblm.reader.drafts import Ahead
from hebblm.reader.explain import Explanation, explained
from hebblm.reader.history import Journal, laid_out
from hebblm.reader.inputs import check_text, known_ids
from hebblm.reader.rerank import RankedText, ranked
from hebblm.reader.spans import WrittenText
from hebblm.runtime.turns import in_turn
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords
from hebblm.text.vocabulary import Vocabulary

T = TypeVar("T")


def learnable(kind: type[T]) -> type[T]:
    """Make public methods leave ``torch.inference_mode``: no later call could learn from its
    tensors.

    They take turns between threads; a generator takes its own turns, step by step.
    """
    for name, value in [*vars(kind).items()]:
        if isfunction(value) and (name == "__init__" or not name.startswith("_")):
            own = name == "__init__" or isgeneratorfunction(value)
            setattr(kind, name, torch.inference_mode(False)(value if own else in_turn(value)))
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
    _first: FirstBatches
    _beginning: State
    _last: Tensor
    _texts: PieceTexts | None = None
    _forms: WordForms | None = None

    @torch.no_grad()
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
        width = self._base.head.weight.shape[1] + (self.model.key_width if self.model.keyed else 0)
        if hidden.ndim != 2 or hidden.shape[1] != width:
            raise UserError(
                f"states of shape {tuple(hidden.shape)} are not (N, {width}), as this model gives "
                "them"
            )
        if texts is not None and len(texts) != len(hidden):
            raise UserError(
                f"{len(texts)} texts do not fit {len(hidden)} states; give one text for each state"
            )
        contexts, ngrams = None, self._context.ngrams
        if texts and ngrams is not None:
            contexts = np.concatenate(
                [contexts_of(np.array([*text, 0]), len(text), ngrams.order) for text in texts]
            )
        batch = EvalBatch(
            hidden.to(self._last.device, self._base.head.weight.dtype),
            self._context,
            contexts=contexts,
        )
        return self._rule.log_probs(batch), batch.log_probs

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
        found = known_ids(
            self.vocabulary,
            ids,
            "row of ids; reader.vocabulary.encode(TEXT, include=False).ids are one",
        )
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
                    self._context.follow(
                        self._states(hidden[begin:end], block).shares_after(labels)
                    )
        return torch.cat(rows) if rows else hidden.new_zeros(0, len(self._base.head.weight))

    @torch.no_grad()
    def suggest(
        self, context: str = "", n: int = 5, *, typed: str = "", budget: int | None = None
    ) -> Suggestions:
        """Return the most probable next words after the text read so far and a context; learns
        nothing.

        At the beginning of a text the context itself shows how far to trust each part of the
        method.

        A word ends before a blank or a line break. Forms that differ only in punctuation that
        follows are one word. A model of pieces finds whole words by a search that ends when no
        other word can belong to the list. In a script without blanks, words are those of ICU's
        dictionaries if ``icu4py`` is installed, else runs of characters.

        Args:
            context: text after the present place, read for this call only. Its last word is
                complete.
            n: number of words; ``<unk>`` is not a word and is left out.
            typed: first letters of the word, which follow the context and its blank.
            budget: most beginnings of words that a model of pieces follows; None for as many as it
                takes.

        Returns:
            The words, most probable first, each with its probability with and without adaptation,
            and the text to insert after the context and the typed letters. ``bound`` is the most
            that any other word can have, and ``exact`` says whether the search ended before the
            budget did.

        Raises:
            UserError: n or budget below 1, a context or letters that are not a string, or a blank
                among the letters.
        """
        found = self._expected(context, n, typed, budget)[1]
        return Suggestions(
            (each.suggestion for each in found.words), found.bound, exact=found.exact
        )

    @torch.no_grad()
    def explain(
        self, context: str = "", n: int = 5, *, typed: str = "", budget: int | None = None
    ) -> list[Explanation]:
        """Explain the words that :meth:`suggest` suggests; learns nothing.

        Args:
            context: as for :meth:`suggest`.
            n: number of words.
            typed: as for :meth:`suggest`.
            budget: as for :meth:`suggest`.

        Returns:
            The words of :meth:`suggest`, each with the share of its probability that every part of
            the method gives, and the three memory entries that weigh most. For a word of several
            pieces these are those of its first piece times the probability of the rest.

        Raises:
            UserError: as for :meth:`suggest`.
        """
        batch, found = self._expected(context, n, typed, budget)
        written = WrittenText.of(self._memory, laid_out(self.journal.record), self.model)
        base = DYNAMIC if self.moving else "base"
        return explained(self._rule, batch, found.words, self.vocabulary, written, base=base)

    def _expected(
        self, context: str, n: int, typed: str = "", budget: int | None = None
    ) -> tuple[EvalBatch, FoundWords]:
        """Return the query after a context, and the n words that are expected there."""
        n, budget = whole("n", n), None if budget is None else whole("budget", budget)
        for text in (context, typed):
            check_text(text)
        if any(letter.isspace() for letter in typed):
            raise UserError(
                f"typed = {typed!r:.60} holds a blank; give the letters of one word, and the rest "
                "as context"
            )
        prompt = Prompt.of(context, typed)
        pieces = self._pieces()
        ids = self._ids(context if pieces is None else prompt.context)
        answer = self._answer(prompt, ids)
        with self._following(ids) as (batch, following):
            if pieces is not None:
                place = prompt.place(self._before(), blank_first=pieces.blank_first)
                found = words_ahead(following, pieces, n, place, budget)
                return batch, replace(
                    found, words=[_inserted(each, prompt, answer) for each in found.words]
                )
            adapted, base = (log_probs[0].exp() for log_probs in following([()]))
            self._forms = self._forms or WordForms(self.vocabulary)
            words = most_probable(
                adapted,
                base,
                self.vocabulary,
                self._forms,
                n,
                typed=typed,
                inserted=lambda index: answer.text([index]),
            )
            return batch, FoundWords(words, 0.0, True)

    @contextmanager
    def _following(self, ids: Tensor) -> Iterator[tuple[EvalBatch, Following]]:
        """Stand after tokens (N,), where the first was read before: give the query there, and the
        expectation.
        """
        with self._base.aside(), self._context.aside():
            hidden = self._base.read(ids)
            past = self._after(ids)
            self._follow(hidden, ids)
            batch = self._batch(hidden[-1:], past)
            first = self._rule.log_probs(batch)[0], self._base.trained_log_probs(batch)[0]
            yield batch, Following(self._with(self._base, False), past, first)

    def _follow(self, hidden: Tensor, ids: Tensor) -> None:
        """Move the shares of the parts along tokens (N,), from the states (N, D) after each; the
        first was read.

        A question at the beginning of a text is a text of its own, and shows how far to trust the
        memory on it. Within a text its words need not be those expected there, and say nothing of
        the kind.
        """
        if not self.journal.begins:
            return
        past, last = self._context.stream_states[0].history[::-1].tolist(), len(ids) - 1
        for begin in range(0, last if self._context.learners else 0, self.update_every):
            end = min(begin + self.update_every, last)
            labels = ids[begin + 1 : end + 1]
            block = Block.of(labels, self.update_every, written=False)
            self._context.follow(self._states(hidden[begin:end], block).shares_after(labels))
            self._context.begin([*past, *ids[1 : end + 1].tolist()])

    def _pieces(self) -> PieceTexts | None:
        """Return the texts of the pieces; None for a model of words."""
        if self._texts is None and isinstance(self.vocabulary, Subwords):
            self._texts = PieceTexts(self.vocabulary)
        return self._texts

    def _before(self) -> str:
        """Return the end of the text read so far, "" at the beginning of a text."""
        pieces, last = self._pieces(), int(self._last)
        if pieces is None or last in pieces.special or last == self.vocabulary.start:
            return ""
        return pieces.data[last].decode(errors="ignore")

    def _answer(self, prompt: Prompt, ids: Tensor) -> Answer:
        """Return how tokens read as an answer to a prompt, whose context has the ids (N,)."""
        pieces = self._pieces()
        if pieces is None:
            return WordAnswer(self.vocabulary, int(ids[-1]), prompt)
        return PieceAnswer(
            self.vocabulary, pieces, prompt, begins=int(ids[-1]) == self.vocabulary.start
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
    ) -> str:
        """Generate text after the text read so far and a prompt, one random token after the other;
        learns nothing.

        The answer follows the prompt directly: the two joined are the whole text. The letters after
        the prompt's last blank may be the beginning of a longer word, which the answer then goes on
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

        Raises:
            UserError: a temperature that is negative or infinite, a number of tokens or a seed that
                is negative or not a whole number, a prompt that is not a string, drafts with a
                method that counts no n-grams, or with a model whose state cannot go back.
        """
        if draft and self._context.ngrams is None:
            raise UserError(
                f"{self.method} counts no n-grams, so it has no drafts; use {self.method}+ngram, "
                "or leave draft out"
            )
        check_text(prompt)
        choose = chooser(temperature, whole("seed", seed, 0))
        most, until = whole("max_new_tokens", max_new_tokens, 0), several("until", until)
        if not most:
            return ""
        with torch.no_grad():
            cut, ids, begun = self._begun(prompt, choose, temperature)
            answer = self._answer(cut, ids)
            past = self._context.stream_states[0].history[::-1].tolist()
            following = Ahead(self._base, self._next, past, self._context.ngrams if draft else None)
            with self._base.aside(), self._context.aside():
                if (
                    self.journal.begins
                ):  # only there do shares follow the prompt, which takes a pass of its own
                    with self._base.aside():
                        hidden = self._base.read(ids)
                    self._follow(hidden, ids)
                return draw(
                    following,
                    torch.cat([ids, ids.new_tensor(begun)]),
                    answer,
                    begun=begun,
                    most=most - bool(answer.text(begun)),
                    temperature=temperature,
                    choose=choose,
                    until=until,
                )

    def _begun(
        self, text: str, choose: Callable[[Tensor], int], temperature: float
    ) -> tuple[Prompt, Tensor, tuple[int, ...]]:
        """Return a prompt, the ids before the word at its end, and tokens that begin with that
        word's letters.

        Where no token of the model begins with them, the letters are read like the rest of the
        prompt.
        """
        prompt, pieces = Prompt.split(text), self._pieces()
        ids = self._ids(prompt.context if pieces is not None else text.removesuffix(prompt.typed))
        place = prompt.place(self._before(), blank_first=pieces is not None and pieces.blank_first)
        begun: tuple[int, ...] | None = ()
        if place.target and (pieces is not None or prompt.typed):
            with self._following(ids) as (_, following):
                if pieces is not None:
                    begun = spelled(following, pieces, place, choose, temperature)
                else:
                    begun = self._word_begun(
                        following([()])[0][0], prompt.typed, choose, temperature
                    )
        if begun is None:
            return Prompt(text, "", ""), self._ids(text), ()
        return prompt, ids, begun

    def _word_begun(
        self, log_probs: Tensor, typed: str, choose: Callable[[Tensor], int], temperature: float
    ) -> tuple[int, ...] | None:
        """Return a word of the model that begins with letters, by log-probabilities (V,); None
        without any.
        """
        at = [
            index
            for index in range(len(log_probs))
            if begins_with(self.vocabulary[index], typed, self.vocabulary)
        ]
        at = [index for index in at if index != self.vocabulary.unknown]
        if not at:
            return None
        scores = log_probs[at].double().cpu()
        return (at[choose(((scores - scores.max()) / (temperature or 1.0)).softmax(0))],)

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
            before: the text directly before each, with the blank at its end; it goes on from what
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
        return ranked(
            self._with(self._base, False),
            self.vocabulary,
            self._last,
            alternatives,
            before,
            prior,
            weight,
        )

    def _next(self, hidden: Tensor, text: Sequence[int]) -> Tensor:
        """Return log-probabilities (V,) after a state (1, D) and a text."""
        return self._rule.log_probs(self._batch(hidden, text))[0]

    def _batch(self, hidden: Tensor, text: Sequence[int] | None = None) -> EvalBatch:
        """Return a mini-batch of states (N, D); ``text`` ends with the token that the last state
        follows.
        """
        contexts, ngrams = None, self._context.ngrams
        if ngrams is not None and text is not None:
            contexts = contexts_of(np.array([*text, 0]), len(text) + 1 - len(hidden), ngrams.order)
        return self._states(hidden, contexts=contexts)

    def _states(
        self, hidden: Tensor, block: Block | None = None, contexts: Ints | None = None
    ) -> EvalBatch:
        states = hidden.to(self._last.device, self._base.head.weight.dtype)
        return EvalBatch(states, self._context, block, contexts=contexts)

    def _after(self, ids: Tensor) -> list[int]:
        """Return as many of the last tokens read as n-grams look at, then ``ids`` without its
        first, which was read.
        """
        past = self._context.stream_states[0].history[::-1]
        return [*past.tolist(), *ids[1:].tolist()]

    def _ids(self, text: str) -> Tensor:
        """Return ids (N,): the last token read, then those of a text; new words become
        ``<unk>``.
        """
        check_text(text)
        ids = self._last.new_tensor(self.vocabulary.encode(text, include=False).ids)
        return torch.cat([self._last, self._known(ids)])

    def _known(self, ids: Tensor) -> Tensor:
        """Return ids (N,) with ``<unk>`` for words whose reading was interrupted: they have an id,
        but no row yet.
        """
        return self._with(self._base, False).known(ids, len(self._base.head.weight))

    def _with(self, base: ReaderBase, learn: bool) -> StreamReader:
        check = partial(self._first.check, self.method)
        unknown = self.vocabulary.unknown
        return StreamReader(
            base, self._context, self._rule, self.update_every, unknown, learn, check
        )


def _inserted(each: Expected, prompt: Prompt, answer: Answer) -> Expected:
    """Return an expected word with the text that it adds to a prompt, in place of the text after
    the blanks.
    """
    word, text = each.suggestion, prompt.blanks + each.suggestion.insert_text
    if isinstance(answer, PieceAnswer):
        text = answer.added(text)
    return Expected(Suggestion(*word, text, ends=word.ends), each.rest)
