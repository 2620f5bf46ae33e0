"""Text that a reader draws, one token after the other, after a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import as_strings, whole_number
from hebblm.online.drawing import Answer, chooser, draw
from hebblm.online.expected import begins_with
from hebblm.online.prompts import Prompt, spelled
from hebblm.reader.drafts import Ahead
from hebblm.reader.inputs import check_text
from hebblm.reader.predict import predict
from hebblm.reader.session import ReaderSession


@torch.no_grad()
def generate(
    session: ReaderSession,
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    until: str | Sequence[str],
    draft: bool,
    new_text: bool,
) -> str:
    """Return the text after a prompt; see :meth:`hebblm.Reader.generate`.

    Args:
        session: where it stands, the prompt follows.
        prompt: text before the answer.
        max_new_tokens: number of tokens to draw.
        temperature: T in ``P^(1/T)``.
        seed: of the random draw.
        until: strings that end the answer.
        draft: whether the base reads ahead.
        new_text: whether the session stands at the beginning of a text.
    """
    if draft and session.context.ngrams is None:
        raise UserError(
            f"{session.method} counts no n-grams, so it has no drafts; use {session.method}+ngram, "
            "or leave draft out"
        )
    check_text(prompt)
    choose = chooser(temperature, whole_number("seed", seed, 0))
    most, until = whole_number("max_new_tokens", max_new_tokens, 0), as_strings("until", until)
    if not most:
        return ""
    cut, ids, begun = _begun(session, prompt, choose, temperature, new_text=new_text)
    answer, base, context = session.answer(cut, ids), session.base, session.context
    ngrams = context.ngrams if draft else None
    following = Ahead(base, session.next_log_probs, session.past(), ngrams)
    with base.preserve_state(), context.preserve_state():
        if new_text:  # only there do shares follow the prompt, which takes a pass of its own
            with base.preserve_state():
                hidden = base.read(ids)
            session.follow_prompt(hidden, ids, new_text=new_text)
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


@torch.no_grad()
def complete(
    session: ReaderSession,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    until: str | Sequence[str],
) -> str:
    """Return the text after ids (T,) with nothing before them; see :meth:`hebblm.Reader.complete`.

    The mixture weights stay as they were learned.
    """
    following = Ahead(
        session.base, lambda state, text: predict(session, state, [text])[0][0], ids[:1], None
    )
    with session.at_text_start():
        return draw(
            following,
            session.last.new_tensor(ids),
            Answer(session.vocabulary),
            most=whole_number("max_new_tokens", max_new_tokens, 0),
            temperature=temperature,
            choose=chooser(temperature, whole_number("seed", seed, 0)),
            until=as_strings("until", until),
        )


def _begun(
    session: ReaderSession,
    text: str,
    choose: Callable[[Tensor], int],
    temperature: float,
    *,
    new_text: bool,
) -> tuple[Prompt, Tensor, tuple[int, ...]]:
    """Return a prompt, the ids before the word at its end, and tokens that begin with that word's
    letters.

    Where no token of the model begins with them, the letters are read like the rest of the prompt.
    """
    prompt, pieces = Prompt.split(text), session.pieces
    ids = session.ids(prompt.context if pieces is not None else text.removesuffix(prompt.typed))
    blank_first = pieces is not None and pieces.blank_first
    place = prompt.place(session.text_before(), blank_first=blank_first)
    begun: tuple[int, ...] | None = ()
    if place.target and (pieces is not None or prompt.typed):
        with session.standing_after(ids, new_text=new_text) as (_, following):
            if pieces is not None:
                begun = spelled(following, pieces, place, choose, temperature)
            else:
                first = following([()])[0][0]
                begun = _word_begun(session, first, prompt.typed, choose, temperature)
    if begun is None:
        return Prompt(text, "", ""), session.ids(text), ()
    return prompt, ids, begun


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
    vocabulary = session.vocabulary
    at = [
        index
        for index in range(len(log_probs))
        if begins_with(vocabulary[index], typed, vocabulary) and index != vocabulary.unknown
    ]
    if not at:
        return None
    scores = log_probs[at].double().cpu()
    return (at[choose(((scores - scores.max()) / (temperature or 1.0)).softmax(0))],)
