"""Text that a reader draws, one token after the other, after a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import as_strings, whole_number
from hebblm.memory.ngrams import NGrams
from hebblm.online.drawing import (
    Answer,
    Drawn,
    PieceAnswer,
    Sampling,
    WordAnswer,
    draw_steps,
    most_probable_of,
)
from hebblm.online.prompts import Prompt, spelled
from hebblm.reader.drafts import Ahead
from hebblm.reader.inputs import check_text
from hebblm.reader.own_text import OwnText, TextStart, standing_after
from hebblm.reader.session import Continuations, ReaderSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of an answer.

    Args:
        most: number of tokens to draw.
        sampling: how each is drawn.
        until: strings that end the answer, which does not contain them.
        draft: whether the base reads ahead.
        top: number of most probable tokens that each step lists; None if nobody asks how probable
            the tokens are.
        heal: whether the letters at the prompt's end may be the beginning of a longer token.
    """

    most: int = 20
    sampling: Sampling = field(default_factory=Sampling)
    until: str | Sequence[str] = ()
    draft: bool = False
    top: int | None = None
    heal: bool = True

    def __post_init__(self) -> None:
        whole_number("max_new_tokens", self.most, 0)
        whole_number("seed", self.sampling.seed, 0)
        if self.top is not None:
            whole_number("top", self.top, 0)
        if self.sampling.top_k is not None:
            whole_number("top_k", self.sampling.top_k)
        as_strings("until", self.until)

    @property
    def ends(self) -> tuple[str, ...]:
        return as_strings("until", self.until)


@torch.no_grad()
def generate(
    session: ReaderSession,
    prompt: str,
    wanted: Wanted,
    beginning: TextStart | None,
    allowed: Callable[[Answer], Answer] = lambda answer: answer,
) -> Iterator[Drawn]:
    """Draw the text after a prompt; see :meth:`hebblm.Reader.generate`.

    Args:
        session: where it stands, the prompt follows; it stands there again when the steps end.
        prompt: text before the answer.
        wanted: of the answer.
        beginning: None if the session stands within a text.
        allowed: returns an answer with further texts that it must not write.

    Yields:
        A step for each token, then one that draws none.
    """
    if wanted.draft and session.context.ngrams is None:
        raise UserError(
            f"{session.method} counts no n-grams, so it has no drafts; use {session.method}+ngram, "
            "or leave draft out"
        )
    check_text(prompt)
    if not wanted.most:
        yield Drawn("", end="length")
        return
    choose = wanted.sampling.chooser()
    start = _start(session, prompt, wanted, choose, beginning)
    answer = allowed(session.answer(start.prompt, start.ids))
    begun = [step.token for step in start.begun if step.token is not None]
    most = wanted.most - bool(answer.text(begun))
    yield from start.begun
    ids = torch.cat([start.ids, start.ids.new_tensor(begun)])
    ngrams = session.context.ngrams if wanted.draft else None
    if beginning is not None:
        with beginning.text(ids[:-1].tolist()) as text:
            expect = _reading_on(text, ids, ngrams)
            yield from _drawn(expect, ids[-1:], answer, begun, most, wanted, choose)
        return
    following = Ahead(session.base, session.next_log_probs, session.past(), ngrams)
    with session.base.preserve_state(), session.context.preserve_state():
        yield from _drawn(following, ids, answer, begun, most, wanted, choose)


@torch.no_grad()
def complete(
    beginning: TextStart, ids: Sequence[int], wanted: Wanted, answer: Answer
) -> Iterator[Drawn]:
    """Draw the text after ids (T,) with nothing before them; see :meth:`hebblm.Reader.complete`.

    Args:
        beginning: of a text.
        ids: at least one.
        wanted: of the answer.
        answer: the text of the answer's tokens.

    Yields:
        A step for each token, then one that draws none.
    """
    choose, last = wanted.sampling.chooser(), beginning.session.last.new_tensor([*ids[-1:]])
    with beginning.text(ids[:-1], begins=False) as text:
        expect = _reading_on(text, last, None)
        yield from _drawn(expect, last, answer, (), wanted.most, wanted, choose)


def _reading_on(text: OwnText, ids: Tensor, ngrams: NGrams | None) -> Callable[[Tensor], Tensor]:
    """Return a function that expects the next token (V,) after further tokens of a text.

    Args:
        text: read up to the last of the ids, which comes next.
        ids: (N,) tokens until then.
        ngrams: counts that drafts come from; None for no drafts.
    """
    if ngrams is None:

        def expect(more: Tensor) -> Tensor:
            text.read(more.tolist())
            return text.log_probs()[0]

        return expect

    def expect_after(state: Tensor, past: Sequence[int]) -> Tensor:
        text.take([past[-1]] if past else ids[-1:].tolist(), state)
        return text.log_probs()[0]

    return Ahead(text.session.base, expect_after, ids[1:].tolist(), ngrams)


def _drawn(
    expect: Callable[[Tensor], Tensor],
    ids: Tensor,
    answer: Answer,
    begun: Sequence[int],
    most: int,
    wanted: Wanted,
    choose: Callable[[Tensor], int],
) -> Iterator[Drawn]:
    return draw_steps(
        expect,
        ids,
        answer,
        begun=begun,
        most=most,
        sampling=wanted.sampling,
        until=wanted.ends,
        top=wanted.top or 0,
        choose=choose,
    )


def answer_to(session: ReaderSession, ids: Sequence[int]) -> Answer:
    """Return how tokens read as an answer to the ids (T,) of a text; they follow it directly.

    The last character of these ids may be complete only with the answer.
    """
    pieces, vocabulary, nothing = session.pieces, session.vocabulary, Prompt("", "", "")
    if pieces is None:
        return WordAnswer(vocabulary, ids[-1], nothing)
    begins = ids[-1] == vocabulary.start
    before = pieces.unfinished(ids)
    return PieceAnswer(vocabulary, pieces, nothing, begins=begins, before=before)


class _Start(NamedTuple):
    """Where an answer begins.

    Args:
        prompt: cut before the word at its end.
        ids: (N,) the tokens before that word.
        begun: steps that draw tokens which begin with that word's letters.
    """

    prompt: Prompt
    ids: Tensor
    begun: tuple[Drawn, ...]


def _start(
    session: ReaderSession,
    text: str,
    wanted: Wanted,
    choose: Callable[[Tensor], int],
    beginning: TextStart | None,
) -> _Start:
    """Return where the answer to a prompt begins.

    Where no token of the model begins with the letters at its end, these are read like the rest of
    the prompt.
    """
    whole_text = _Start(Prompt(text, "", ""), session.ids(text), ())
    if not wanted.heal:
        return whole_text
    prompt, pieces = Prompt.split(text), session.pieces
    ids = session.ids(prompt.context if pieces is not None else text.removesuffix(prompt.typed))
    space_first = pieces is not None and pieces.space_first
    place = prompt.place(session.text_before(), space_first=space_first)
    if not place.target or (pieces is None and not prompt.typed):
        return _Start(prompt, ids, ())
    temperature = wanted.sampling.temperature
    begun: tuple[int, ...] | None
    with standing_after(session, ids, beginning) as (_, following):
        if pieces is not None:
            begun = spelled(following, pieces, place, choose, temperature)
        else:
            first = following([()])[0][0]
            begun = _word_begun(session, first, prompt.typed, choose, temperature)
        if begun is None:
            return whole_text
        return _Start(prompt, ids, tuple(_scored(begun, following, wanted.top)))


def _scored(begun: Sequence[int], following: Continuations, top: int | None) -> Iterator[Drawn]:
    """Yield a step for each token that begins an answer, scored if that is asked for."""
    for at, token in enumerate(begun):
        if top is None:
            yield Drawn("", token, again=True)
        else:
            log_probs = following([tuple(begun[:at])])[0][0].cpu().double()
            best = most_probable_of(log_probs, top)
            yield Drawn("", token, float(log_probs[token]), best, again=True)


def _word_begun(
    session: ReaderSession,
    log_probs: Tensor,
    typed: str,
    choose: Callable[[Tensor], int],
    temperature: float,
) -> tuple[int, ...] | None:
    """Return a word of the model that begins with letters, by log-probabilities (V,); None without
    any.
    """
    fits = session.word_forms.beginning_with(typed, len(log_probs))
    at = [index for index in fits if index != session.vocabulary.unknown]
    if not at:
        return None
    scores = log_probs[at].double().cpu()
    return (at[choose(((scores - scores.max()) / (temperature or 1.0)).softmax(0))],)
