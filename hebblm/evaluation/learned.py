"""What was learned of a text: suggestions for the words that gained most, before and after all of
it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.vocabulary import VocabularyPolicy
from hebblm.evaluation.word_accuracy import BUDGET, Expectations, places_of
from hebblm.models.base import StreamBase
from hebblm.online.effort import SearchEffort
from hebblm.online.prompts import Prompt
from hebblm.online.word_beam import words_ahead
from hebblm.report.result.methods import BASE
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import EOS, UNK
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

SHOWN = 3  # words that are asked for, and suggestions for each
BEFORE = 5  # words of the text before each, at most
# nats that a word gains each time: frequent words gain much in all, and little each time
LEAST = 0.5

Losses = Mapping[str, npt.NDArray[np.float32]]


class Question(NamedTuple):
    """A word of the text, and the tokens before it in its line, which are the question."""

    word: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with its answers, most probable first.

    Args:
        before: the words of the text before the one that was asked for.
        word: that word, as the text has it.
        unread: words suggested by the base before it read the text, with their probabilities.
        read: words suggested by a method after it read the text.
    """

    before: str
    word: str
    unread: tuple[tuple[str, float], ...]
    read: tuple[tuple[str, float], ...]


def questions(
    stream: EvaluationStream, gains: npt.NDArray[np.float64], most: int = SHOWN
) -> list[Question]:
    """Return the words with the largest gains in all, each where it gained most; those that gain
    little each time last.

    Args:
        stream: the text.
        gains: (U,) nats of each word.
        most: number of words.
    """
    words = stream.reported
    totals = np.bincount(words.targets, weights=gains, minlength=len(words.symbols))
    times = np.bincount(words.targets, minlength=len(words.symbols))
    breaks = {words.symbols.index(EOS)} if EOS in words.symbols else set()
    ids = words.targets.tolist()
    asked_so_far: list[Question] = []
    little = totals < LEAST * times
    for index in np.lexsort((-totals, little)).tolist():
        word = words.symbols[index]
        if len(asked_so_far) == most:
            break
        if totals[index] <= 0:
            continue
        if times[index] < 2 or word in (EOS, UNK) or not any(map(str.isalpha, word)):
            continue
        places = np.flatnonzero(words.targets == index)
        for place in places[np.argsort(-gains[places], kind="stable")].tolist():
            begin = place
            while begin > max(0, place - BEFORE) and ids[begin - 1] not in breaks:
                begin -= 1
            bounds = [_first_token(stream, at) for at in (begin, place)] if begin < place else []
            if bounds and None not in bounds:
                asked_so_far.append(
                    Question(word, *[bound for bound in bounds if bound is not None])
                )
                break
    return asked_so_far


def _first_token(stream: EvaluationStream, word: int) -> int | None:
    """Return the token that a word begins with; None if that one belongs to the word before it as
    well.
    """
    if stream.pieces is None:
        return word
    return next((place.begin for place in places_of(stream, [word])), None)


class LearnedWords:
    """Suggestions before and after reading; asked for at the end of a pass, so no loss depends on
    them.

    Args:
        stream: the text.
        vocabulary: policy for words without a row.
        pieces: the vocabulary of a model of pieces, None if tokens are words.
    """

    def __init__(
        self, stream: EvaluationStream, vocabulary: VocabularyPolicy, pieces: Subwords | None
    ) -> None:
        self._stream, self._vocabulary = stream, vocabulary
        self._texts = None if pieces is None else PieceTexts(pieces)
        self._pieces = pieces

    @torch.no_grad()
    def ask(
        self,
        base: StreamBase,
        context: Context,
        predictors: Mapping[str, Predictor],
        losses: Losses,
    ) -> dict[str, Any]:
        """Ask the base as it was at the beginning, and the best of the other methods at the end of
        the text.

        Args:
            base: it has read the text, except for the last token.
            context: what was learned of the text.
            predictors: methods by name.
            losses: (T,) of the tokens under each, nats.

        Returns:
            The method and the answers, as JSON; nothing without a base that stays as trained and
            another method.
        """
        others = [name for name in predictors if name != BASE]
        if base.trains_online or BASE not in predictors or not others:
            return {}
        best = min(others, key=lambda name: float(losses[name].mean(dtype=np.float64)))
        by_word = [
            self._stream.word_losses(losses[name]).astype(np.float64) for name in (BASE, best)
        ]
        with np.errstate(invalid="ignore"):
            gains = np.nan_to_num(by_word[0] - by_word[1], nan=0.0, posinf=0.0, neginf=0.0)
        ids, answers = self._stream.ids.tolist(), []
        order, beginning = (
            0 if context.ngrams is None else context.ngrams.order,
            base.frozen().stream_state(),
        )
        for question in questions(self._stream, gains):
            asked = ids[question.begin : question.end]
            with base.preserve_state():
                base.load_stream_state(beginning)
                unread = self._after(base, context, [self._stream.eos], asked, predictors[BASE])
            with base.preserve_state():
                read = self._after(base, context, ids[-max(1, order) :], asked, predictors[best])
            answers.append(asdict(Answered(self._joined(asked), question.word, unread, read)))
        return {"method": best, "words": answers}

    def _after(
        self,
        base: StreamBase,
        context: Context,
        past: Sequence[int],
        asked: Sequence[int],
        predictor: Predictor,
    ) -> tuple[tuple[str, float], ...]:
        """Return the most probable words after ``past`` and ``asked``; the base stands before the
        last of ``past``.
        """
        tokens = torch.tensor([past[-1], *asked], device=context.head.weight.device)
        state = base.read(self._vocabulary.readable(tokens, len(context.head.weight)))[-1]
        if self._texts is None:
            row = predictor.log_probs(EvalBatch.after([()], state[None], context, [*past, *asked]))[
                0
            ].exp()
            best = row.topk(min(SHOWN + 1, len(row)))
            words = [
                (self._stream.symbols[index], share)
                for share, index in zip(*map(Tensor.tolist, best), strict=True)
            ]
            return tuple((word, share) for word, share in words if word != UNK)[:SHOWN]
        ahead = Expectations(base, context, state, [*past, *asked])

        def expect(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
            log_probs = ahead.log_probs("", predictor, rows)
            return log_probs, log_probs

        place = Prompt.of("").place(self._texts.text(asked or past))
        ahead_words = words_ahead(expect, self._texts, SHOWN, place, SearchEffort(BUDGET)).words
        return tuple(
            (expected.suggestion.word, expected.suggestion.probability) for expected in ahead_words
        )

    def _joined(self, ids: Sequence[int]) -> str:
        if self._pieces is not None:
            return self._pieces.join(ids).strip()
        return " ".join(self._stream.symbols[index] for index in ids)
