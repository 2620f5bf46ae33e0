"""Answers to questions, in OpenAI's form; all of them are made in a thread, step by step."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from hebblm.online.drawing import Answer, Drawn
from hebblm.online.prompts import Prompt
from hebblm.reader.generate import Wanted, answer_to, complete, generate
from hebblm.reader.inputs import check_text
from hebblm.reader.seat import Seat
from hebblm.reader.session import ReaderSession
from hebblm.serve.bodies import Chat, Completion
from hebblm.serve.errors import ApiError, refused
from hebblm.serve.seats import Seats
from hebblm.serve.texts import names_of, texts_of

T = TypeVar("T")
LEAST = -9999.0  # nats, in place of minus infinity, which JSON has not
MAX_TOKENS = 16  # of a completion that does not say
CHAT_TOKENS = 256


class GoneError(Exception):
    """The client is gone, or its time is over."""


class Turns:
    """Turns of the threads that ask: one computes at a time, and the next one after each step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def in_turns(self, steps: Iterator[T], gone: threading.Event) -> Iterator[T]:
        """Yield steps, each computed in a turn, until the client is gone."""
        try:
            while True:
                with self._lock, torch.inference_mode(False), torch.no_grad():
                    if gone.is_set():
                        raise GoneError
                    step = next(steps, None)
                if step is None:
                    return
                yield step
        finally:
            close = getattr(steps, "close", None)
            if close is not None:
                with self._lock:
                    close()

    def call(self, work: Callable[[], T], gone: threading.Event) -> T:
        """Do a piece of work in a turn, and return its result."""
        with self._lock, torch.inference_mode(False), torch.no_grad():
            if gone.is_set():
                raise GoneError
            return work()


@dataclass(slots=True)
class Usage:
    """Tokens of a request."""

    prompt: int = 0
    completion: int = 0

    @property
    def body(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(slots=True)
class Scored:
    """Tokens of an answer with their log-probabilities, in the form of ``logprobs``.

    Args:
        session: of the model.
        offset: code points of the returned text before the next token.
    """

    session: ReaderSession
    offset: int = 0
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(
        self, text: str, token: int, log_prob: float | None, best: Sequence[tuple[int, float]]
    ) -> None:
        """Add a token.

        Args:
            text: what it adds to the text.
            token: its id.
            log_prob: nats; None for the first token of a text.
            best: the most probable tokens in its place, with their log-probabilities.
        """
        self.tokens.append(text)
        self.offsets.append(self.offset)
        self.offset += len(text)
        if log_prob is None:
            self.token_logprobs.append(None)
            self.top.append(None)
            return
        value = max(log_prob, LEAST)
        self.token_logprobs.append(value)
        listed = [(index, max(other, LEAST)) for index, other in best]
        if all(index != token for index, _ in listed):
            listed.append((token, value))
        names = names_of(self.session, [index for index, _ in listed])
        self.top.append(dict(zip(names, (other for _, other in listed), strict=True)))

    @property
    def body(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer, as it is made.

    Args:
        index: of the answer.
        text: that it adds.
        logprobs: of its tokens, if asked for.
        end: why the answer ends, at its last part.
    """

    index: int
    text: str
    logprobs: dict[str, Any] | None
    end: str | None


class Blocking(Answer):
    """An answer without some words.

    Args:
        inner: the answer.
        words: that it does not contain, in small letters.
    """

    def __init__(self, inner: Answer, words: Sequence[str]) -> None:
        super().__init__(inner.vocabulary)
        self._inner, self._words = inner, frozenset(words)

    @property
    def lasts(self) -> bool:  # type: ignore[override]
        return self._inner.lasts

    def text(self, drawn: Sequence[int]) -> str:
        return self._inner.text(drawn)

    def barred(self, drawn: Sequence[int]) -> torch.Tensor | None:
        return self._inner.barred(drawn)

    def fits(self, drawn: Sequence[int]) -> bool:
        words = self._inner.text(drawn).split()
        last = words[-1].strip(".,;:!?\"'()").casefold() if words else ""
        return last not in self._words and self._inner.fits(drawn)


class Completions:
    """Answers to the prompts of one request.

    Args:
        seats: over the memory that is asked.
        turns: of all threads that ask.
        window: tokens of a prompt, at most; None for any number.
        blocked: words that no answer contains.
    """

    def __init__(
        self, seats: Seats, turns: Turns, window: int | None, blocked: Sequence[str] = ()
    ) -> None:
        self._seats, self._turns, self._window = seats, turns, window
        self._blocked = [word.casefold() for word in blocked]
        self.usage = Usage()
        self._echoed = 0  # code points of the prompt in front of an answer

    def check(self, body: Completion) -> list[list[int]]:
        """Return the ids of each prompt; refuse those that the model cannot read.

        Raises:
            ApiError: an id that the model does not have, or a prompt beyond the window.
        """
        session, id_rows = self._seats.session, []
        for prompt in body.prompts:
            if isinstance(prompt, str):
                check_text(prompt)
                ids = session.ids(prompt)[1:].tolist()
            else:
                ids = prompt
                rows = len(session.base.head.weight)
                for index in ids:
                    if not 0 <= index < rows:
                        raise refused("prompt", f"id {index} is not between 0 and {rows - 1}")
                if not ids:
                    raise refused("prompt", "a prompt of ids is empty; give at least one")
            self.check_window(len(ids))
            self.usage.prompt += len(ids)
            id_rows.append(ids)
        return id_rows

    def check_window(self, tokens: int) -> None:
        if self._window is not None and tokens > self._window:
            raise ApiError(
                400,
                f"the prompt has {tokens} tokens, and the model reads {self._window}; shorten it, "
                "or start the server with a longer context",
                "prompt",
                "context_length_exceeded",
            )

    def answers(self, body: Completion, gone: threading.Event) -> Iterator[Piece]:
        """Yield the parts of all answers, one answer after the other."""
        prompts = self.check(body)
        for number, (prompt, ids) in enumerate(zip(body.prompts, prompts, strict=True)):
            for choice in range(body.count):
                index = number * body.count + choice
                yield from self._answer(body, prompt, ids, index, gone)

    def _answer(
        self,
        body: Completion,
        prompt: str | list[int],
        ids: list[int],
        index: int,
        gone: threading.Event,
    ) -> Iterator[Piece]:
        """Yield the parts of an answer.

        A text is read as hebblm reads texts: it follows the token that begins one, and the letters
        at its end may be the beginning of a longer token, unless they are to be scored.
        """
        is_text = isinstance(prompt, str)
        whole = [self._seats.session.vocabulary.start, *ids] if is_text else ids
        most = MAX_TOKENS if body.max_tokens is None else body.max_tokens
        with self._seats.take(whole, begins=is_text) as seat:
            scored = None if body.logprobs is None else Scored(seat.session)
            if body.echo:
                yield self._echo(seat, prompt, ids, body, index, gone)
                if scored is not None:
                    scored.offset = self._echoed
            wanted = Wanted(
                most=most,
                sampling=body.sampling(index),
                until=body.ends,
                top=body.logprobs,
                heal=not body.echo,
            )
            if not most:
                yield Piece(index, "", None, "length")
                return
            if is_text:
                assert isinstance(prompt, str)
                steps = self._of_text(seat, prompt, wanted)
                answer = self._text_answer(seat.session, prompt, heal=wanted.heal)
            else:
                answer = answer_to(seat.session, ids)
                steps = complete(seat, ids, wanted, self._allowed(answer))
            yield from self._pieces(steps, answer, scored, index, gone)

    def _of_text(self, seat: Seat, prompt: str, wanted: Wanted) -> Iterator[Drawn]:
        return generate(seat.session, prompt, wanted, seat, self._allowed)

    def _allowed(self, answer: Answer) -> Answer:
        return Blocking(answer, self._blocked) if self._blocked else answer

    @staticmethod
    def _text_answer(session: ReaderSession, prompt: str, *, heal: bool) -> Answer:
        """Return how the tokens drawn after a text read."""
        cut = Prompt.split(prompt) if heal else Prompt(prompt, "", "")
        context = cut.context
        if session.pieces is None:
            context = prompt.removesuffix(cut.typed)
        return session.answer(cut, session.ids(context))

    def _echo(
        self,
        seat: Seat,
        prompt: str | list[int],
        ids: list[int],
        body: Completion,
        index: int,
        gone: threading.Event,
    ) -> Piece:
        """Return the prompt as the first part of an answer."""
        texts = texts_of(seat.session, ids)
        shown = prompt if isinstance(prompt, str) else "".join(texts)
        self._echoed = len(shown)
        if body.logprobs is None:
            return Piece(index, shown, None, None)
        scored = Scored(seat.session)
        start = [seat.session.vocabulary.start] if isinstance(prompt, str) else []
        rows = self._rows([*start, *ids], seat, body.logprobs, begins=bool(start))
        for place, (log_prob, best) in enumerate(self._turns.in_turns(rows, gone)):
            token = place - len(start)
            if token == 0:
                scored.add(texts[0], ids[0], None, ())
            elif token > 0:
                scored.add(texts[token], ids[token], log_prob, best)
        return Piece(index, shown, scored.body, None)

    @staticmethod
    def _rows(
        ids: list[int], seat: Seat, top: int, *, begins: bool
    ) -> Iterator[tuple[float, tuple[tuple[int, float], ...]]]:
        """Yield the log-probability of each token, and the most probable ones in its place.

        The first one has none, and stands for itself.
        """
        if ids:
            yield 0.0, ()
        with seat.text(ids[:-1], begins=begins) as text:
            place = 0
            for rows in text.rows(0) if len(ids) > 1 else ():
                rows = rows.cpu().double()  # (N, V)
                best = rows.topk(min(top, rows.shape[1])) if top else None
                for number, row in enumerate(rows):
                    place += 1
                    listed: tuple[tuple[int, float], ...] = ()
                    if best is not None:
                        pairs = best.indices[number].tolist(), best.values[number].tolist()
                        listed = tuple(zip(*pairs, strict=True))
                    yield float(row[ids[place]]), listed

    def _pieces(
        self,
        steps: Iterator[Drawn],
        answer: Answer,
        scored: Scored | None,
        index: int,
        gone: threading.Event,
    ) -> Iterator[Piece]:
        """Yield a part for each step of an answer that adds something."""
        drawn: list[int] = []
        text = ""
        for step in self._turns.in_turns(steps, gone):
            logprobs = None
            if step.token is not None:
                drawn = drawn if step.token == answer.vocabulary.end else [*drawn, step.token]
                longer = answer.text(drawn)
                # a token that only writes letters of the prompt again is no token of the answer
                if not step.again or len(longer) > len(text):
                    self.usage.completion += 1
                    logprobs = self._logprobs(scored, longer[len(text) :], step)
                text = longer
            if step.text or logprobs is not None or step.end is not None:
                yield Piece(index, step.text, logprobs, step.end)

    @staticmethod
    def _logprobs(scored: Scored | None, text: str, step: Drawn) -> dict[str, Any] | None:
        """Return the log-probabilities of one token, if they are asked for."""
        if scored is None or step.token is None:
            return None
        part = Scored(scored.session, scored.offset)
        part.add(text, step.token, step.log_prob, step.top)
        scored.offset = part.offset
        return part.body


def joined(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return an answer, as one choice of a completion."""
    parts = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    logprobs = None
    if parts:
        logprobs = {name: [one for part in parts for one in part[name]] for name in parts[0]}
    return {
        "index": pieces[0].index,
        "text": "".join(piece.text for piece in pieces),
        "logprobs": logprobs,
        "finish_reason": pieces[-1].end,
    }


def completion_head(model: str, kind: str, prefix: str) -> dict[str, Any]:
    """Return the fields that every answer begins with."""
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def chat_prompt(tokenizer: Any, body: Chat) -> list[int]:
    """Return the ids of a conversation, by the tokenizer's own template.

    Raises:
        ApiError: there is no template, or it refuses the conversation.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise ApiError(
            400, "the model has no chat template; use /v1/completions", "model", "no_chat_template"
        )
    conversation = [{"role": message.role, "content": message.text} for message in body.messages]
    try:
        text = tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # a template may raise anything; its words are about roles
        raise refused("messages", f"the chat template refuses the messages: {error}") from error
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def chat_logprobs(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the log-probabilities of a completion in the form of a chat."""
    if part is None:
        return None
    content = []
    for token, value, top in zip(
        part["tokens"], part["token_logprobs"], part["top_logprobs"], strict=True
    ):
        content.append(
            {
                "token": token,
                "logprob": value,
                "bytes": list(token.encode()),
                "top_logprobs": [
                    {"token": name, "logprob": other, "bytes": list(name.encode())}
                    for name, other in (top or {}).items()
                ],
            }
        )
    return {"content": content}


def as_completion(body: Chat, ids: list[int], ends: Sequence[str]) -> Completion:
    """Return the completion that answers a conversation."""
    return Completion(
        model=body.model,
        prompt=list(ids),
        max_tokens=CHAT_TOKENS if body.max_tokens is None else body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        n=body.n,
        stop=[*body.ends, *ends],
        seed=body.seed,
        stream=body.stream,
        stream_options=body.stream_options,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        memory=body.memory,
        adapted=body.adapted,
    )
