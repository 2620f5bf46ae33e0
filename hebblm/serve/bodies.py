"""Bodies of requests: their fields, types and defaults, and which values cannot be honoured."""

from __future__ import annotations

import math
import secrets
from typing import Annotated, Any, TypeVar

import msgspec

from hebblm.errors import UserError
from hebblm.online.drawing import Sampling
from hebblm.online.effort import QUICK
from hebblm.serve.config import Limits
from hebblm.serve.errors import ApiError, refused

B = TypeVar("B", bound="Body")
Prompts = str | list[int | str | list[int]]
Text = Annotated[str, msgspec.Meta(max_length=1 << 24)]
Stops = str | list[str] | None
MOST_STOPS = 16


class Body(msgspec.Struct, kw_only=True):
    """What every question may say.

    Args:
        memory: name of the memory to ask.
        adapted: False asks the unadapted model.
    """

    memory: str | None = None
    adapted: bool = True


class StreamOptions(msgspec.Struct, kw_only=True):
    """Args:
    include_usage: whether a last event counts the tokens.
    """

    include_usage: bool = False


class Drawing(Body, kw_only=True):
    """Fields that answers of both kinds have."""

    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    stop: Stops = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None

    @property
    def count(self) -> int:
        """Number of answers to each prompt."""
        return 1 if self.n is None else self.n

    @property
    def ends(self) -> tuple[str, ...]:
        """Strings that end an answer."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def check(self, limits: Limits) -> None:
        """Refuse what cannot be honoured."""
        if self.count < 1 or self.count > limits.choices:
            raise refused("n", f"n = {self.count} must lie between 1 and {limits.choices}")
        most = self.max_tokens
        if most is not None and not 0 <= most <= limits.tokens:
            raise refused(
                "max_tokens", f"max_tokens = {most} must lie between 0 and {limits.tokens}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                raise refused(
                    name, f"{name} = {getattr(self, name)} is not supported; leave it out"
                )
        if self.logit_bias:
            raise refused("logit_bias", "logit_bias is not supported; leave it out")
        if len(self.ends) > MOST_STOPS or not all(self.ends):
            raise refused(
                "stop", f"stop must hold at most {MOST_STOPS} strings, and none that is empty"
            )
        if self.stream_options is not None and not self.stream:
            raise refused("stream_options", "stream_options needs stream = true")

    def sampling(self, number: int, temperature: float = 1.0) -> Sampling:
        """Return how the tokens of one of several answers are drawn."""
        chosen = temperature if self.temperature is None else self.temperature
        seed = secrets.randbits(31) if self.seed is None else abs(self.seed) % (1 << 40)
        top_k = None if self.top_k in (None, 0, -1) else self.top_k
        if top_k is not None and top_k < 1:
            raise refused("top_k", f"top_k = {top_k} must be at least 1, or 0 for all tokens")
        if not math.isfinite(chosen) or not 0 <= chosen <= 100:
            raise refused("temperature", f"temperature = {chosen} must lie between 0 and 100")
        try:
            return Sampling(chosen, seed + number, top_k, 1.0 if self.top_p is None else self.top_p)
        except UserError as error:
            raise refused("top_p", str(error)) from error


class Completion(Drawing, kw_only=True):
    """Body of ``/v1/completions``."""

    prompt: Prompts = ""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    def check(self, limits: Limits) -> None:
        super().check(limits)
        if self.suffix:
            raise refused("suffix", "suffix is not supported; a model reads from left to right")
        if self.best_of is not None and self.best_of != self.count:
            raise refused(
                "best_of", f"best_of = {self.best_of} is not supported; leave it out, or give n"
            )
        if self.logprobs is not None and not 0 <= self.logprobs <= limits.top:
            raise refused(
                "logprobs", f"logprobs = {self.logprobs} must lie between 0 and {limits.top}"
            )
        if self.stream and self.echo and self.logprobs is not None:
            raise refused("stream", "echo with logprobs is not streamed; leave stream out")
        if len(self.prompts) * self.count > limits.choices:
            raise refused(
                "prompt",
                f"{len(self.prompts)} prompts times n = {self.count} are more than "
                f"{limits.choices} answers; send several requests",
            )

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = {type(one) for one in self.prompt}
        if len(kinds) != 1:
            raise refused(
                "prompt", "prompt must be a string, a list of ids, or a list of either alone"
            )
        if kinds == {int}:
            return [[int(one) for one in self.prompt if isinstance(one, int)]]
        return [one for one in self.prompt if not isinstance(one, int)]


class Message(msgspec.Struct, kw_only=True):
    """A message of a conversation."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            parts = []
            for part in self.content:
                if part.get("type") != "text" or not isinstance(part.get("text"), str):
                    raise refused("messages", "a message holds something other than text")
                parts.append(part["text"])
            return "".join(parts)
        return self.content or ""


class Chat(Drawing, kw_only=True):
    """Body of ``/v1/chat/completions``."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def check(self, limits: Limits) -> None:
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        super().check(limits)
        if not self.messages:
            raise refused("messages", "messages is empty; give at least one")
        if self.tools:
            raise refused("tools", "tools are not supported; leave them out")
        if self.response_format not in (None, {"type": "text"}):
            raise refused("response_format", "response_format is not supported; leave it out")
        if self.top_logprobs is not None and not self.logprobs:
            raise refused("top_logprobs", "top_logprobs needs logprobs = true")
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= limits.top:
            raise refused(
                "top_logprobs",
                f"top_logprobs = {self.top_logprobs} must lie between 0 and {limits.top}",
            )


class Suggest(Body, kw_only=True):
    """Body of ``/v1/suggest`` and ``/v1/explain``.

    Args:
        prefix: text before the word; its last word is complete, unless ``typed`` is None.
        typed: letters of the word so far; None for those after the last space of ``prefix``.
        n: number of words.
        budget: most beginnings of words that a model of pieces follows.
        least: probability below which a model of pieces does not look for words.
    """

    prefix: Text = ""
    typed: Text | None = None
    n: int = 5
    budget: int | None = QUICK.budget
    least: float = QUICK.least


class Rank(Body, kw_only=True):
    """Body of ``/v1/rank``."""

    alternatives: list[Text]
    before: Text = ""
    prior: list[float] | None = None
    weight: float = 1.0


class DocumentBody(msgspec.Struct, kw_only=True):
    """Body of ``POST`` and ``PUT`` of ``/v1/documents``.

    Args:
        text: of the document.
        name: by which it can be replaced and deleted; None gives it one.
        memory: name of the memory that learns it.
        wait: whether the answer comes when the document is learned, or when it is kept.
    """

    text: str
    name: str | None = None
    memory: str | None = None
    wait: bool = True


class DocumentName(msgspec.Struct, kw_only=True):
    """Body of ``DELETE`` of ``/v1/documents``."""

    name: str
    memory: str | None = None
    wait: bool = True


class Feedback(msgspec.Struct, kw_only=True):
    """Body of ``/v1/feedback``.

    Args:
        prefix: text before the suggestion.
        suggestion: the text that was suggested.
        taken: whether it was accepted; the prefix's last line and the suggestion are then learned.
        block: whether a word that was refused is never suggested again.
        memory: name of the memory.
        wait: whether the answer comes when the text is learned.
    """

    suggestion: Text
    taken: bool
    prefix: Text = ""
    block: bool = False
    memory: str | None = None
    wait: bool = True


class BlockBody(msgspec.Struct, kw_only=True):
    """Body of ``POST`` and ``DELETE`` of ``/v1/block``."""

    words: list[Text]
    memory: str | None = None


class Tokenize(msgspec.Struct, kw_only=True):
    """Body of ``/tokenize``."""

    prompt: Text
    add_special_tokens: bool = True


class Detokenize(msgspec.Struct, kw_only=True):
    """Body of ``/detokenize``."""

    tokens: list[int]


S = TypeVar("S", bound=msgspec.Struct)


def decode(data: bytes, kind: type[S]) -> S:
    """Return a body of a kind.

    Raises:
        ApiError: it is no JSON, or has a field of another type.
    """
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body does not fit: {error}", code="invalid_body") from error
