"""Words that a reader expects at its place in a text."""

from __future__ import annotations

from dataclasses import replace

import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import whole_number
from hebblm.online.drawing import Answer, PieceAnswer
from hebblm.online.effort import THOROUGH, SearchEffort
from hebblm.online.expected import Expected, Suggestion, Suggestions, most_probable
from hebblm.online.prompts import Prompt
from hebblm.online.word_beam import FoundWords, words_ahead
from hebblm.reader.inputs import check_text
from hebblm.reader.own_text import TextStart, standing_after
from hebblm.reader.session import ReaderSession


def suggest(
    session: ReaderSession,
    context: str,
    n: int,
    *,
    typed: str,
    effort: SearchEffort,
    beginning: TextStart | None,
) -> Suggestions:
    """Return the n most probable next words; see :meth:`hebblm.Reader.suggest`.

    Args:
        session: where it stands, the context follows.
        context: text before the word.
        n: number of words.
        typed: first letters of the word.
        effort: how far a search of words of several pieces goes.
        beginning: None if the session stands within a text.
    """
    _, expected = expected_words(
        session, context, n, typed=typed, effort=effort, beginning=beginning
    )
    return Suggestions(
        (word.suggestion for word in expected.words), expected.bound, exact=expected.exact
    )


@torch.no_grad()
def expected_words(
    session: ReaderSession,
    context: str,
    n: int,
    *,
    typed: str = "",
    effort: SearchEffort = THOROUGH,
    beginning: TextStart | None,
) -> tuple[EvalBatch, FoundWords]:
    """Return the query after a context, and the n words that are expected there; see
    :func:`suggest`.
    """
    n = whole_number("n", n)
    if effort.budget is not None:
        whole_number("budget", effort.budget)
    if not 0 <= effort.least < 1:
        raise UserError(f"least = {effort.least} must be a probability below 1")
    for text in (context, typed):
        check_text(text)
    if any(letter.isspace() for letter in typed):
        raise UserError(
            f"typed = {typed!r:.60} holds a space; give the letters of one word, and the rest as "
            "context"
        )
    prompt, pieces = Prompt.of(context, typed), session.pieces
    ids = session.ids(context if pieces is None else prompt.context)
    answer = session.answer(prompt, ids)
    with standing_after(session, ids, beginning) as (batch, following):
        if pieces is not None:
            place = prompt.place(session.text_before(), space_first=pieces.space_first)
            search = words_ahead(following, pieces, n, place, effort)
            words = [_inserted(word, prompt, answer) for word in search.words]
            return batch, replace(search, words=words)
        adapted, base = (log_probs[0].exp() for log_probs in following([()]))
        words = most_probable(
            adapted,
            base,
            session.vocabulary,
            session.word_forms,
            n,
            typed=typed,
            inserted=lambda index: answer.text([index]),
        )
        return batch, FoundWords(words, 0.0, True)


def _inserted(expected: Expected, prompt: Prompt, answer: Answer) -> Expected:
    """Return an expected word with the text that it adds to a prompt, in place of the text after
    the spaces.
    """
    word, text = expected.suggestion, prompt.spaces + expected.suggestion.insert_text
    if isinstance(answer, PieceAnswer):
        text = answer.added(text)
    return Expected(Suggestion(*word, text, ends=word.ends), expected.rest)
