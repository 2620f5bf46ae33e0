"""What the server knows: the model, its memories, and how questions reach them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hebblm.api.language_model import LanguageModel
from hebblm.errors import UserError
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.online.effort import SearchEffort
from hebblm.online.expected import Suggestions
from hebblm.online.prompts import split_typed
from hebblm.reader.explain import Explanation, explain
from hebblm.reader.reader import Reader
from hebblm.reader.rerank import RankedText, rank
from hebblm.reader.suggest import suggest
from hebblm.serve.answers import Completions, Piece, Turns, Usage
from hebblm.serve.bodies import Body, Completion, Rank, Suggest
from hebblm.serve.config import Limits
from hebblm.serve.errors import ApiError, refused
from hebblm.serve.memories import BASE, DEFAULT, Memories, NamedMemory, Published


class Service:
    """A model that answers, and memories that learn.

    Args:
        model: that all readers share.
        name: by which clients call it.
        method: of adaptation; None takes that of a saved reader, or ``best``.
        settings: hyper-parameters by dotted name.
        folder: where memories are kept; None keeps nothing.
        limits: of what clients may ask.
        learned: called with the number of tokens of each document that was learned.

    Raises:
        UserError: an unknown method, or one that changes the model's weights.
    """

    def __init__(
        self,
        model: LanguageModel,
        name: str,
        *,
        method: str | None,
        settings: dict[str, Any],
        folder: Path | None,
        limits: Limits,
        learned: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self.model, self.name, self.limits = model, name, limits
        self.turns = Turns()

        def opens(saved: Path | None) -> Reader:
            return model.reader(method, memory=saved, settings=settings)

        self.memories = Memories(opens, lambda: model.reader("base"), folder, limits, learned)

    @property
    def window(self) -> int | None:
        """Tokens of a prompt, at most; None for any number."""
        if isinstance(self.model.model, HuggingFaceModel) and not self.model.model.recurrent:
            return self.model.model.context
        return None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of a model of pieces; None for a model of words."""
        return None if self.model.pieces is None else self.model.pieces.tokenizer

    def models(self) -> list[str]:
        """Names by which clients may ask: the default memory, the base, and other memories."""
        others = [memory.name for memory in self.memories.opened() if memory.name != DEFAULT]
        return [self.name, f"{self.name}:{BASE}", *(f"{self.name}:{name}" for name in others)]

    def memory(self, name: str | None) -> NamedMemory:
        return self.memories.get(name or DEFAULT)

    def asked(self, body: Body, model: str | None = None) -> tuple[Published, tuple[str, ...]]:
        """Return the memory that a question asks, and the words never to suggest.

        Args:
            body: of the question.
            model: name of the model in it, which may name a memory after a colon.

        Raises:
            ApiError: another model, or a memory that cannot be opened.
        """
        memory = body.memory
        if model:
            name, _, after = model.removeprefix(self.name).partition(":")
            if not model.startswith(self.name) or name:
                raise ApiError(
                    400,
                    f"the server has no model {model!r:.60}; it has {', '.join(self.models())}",
                    "model",
                    "model_not_found",
                )
            memory = memory or after or None
        if not body.adapted or memory == BASE:
            return self.memories.base, ()
        chosen = self.memory(memory)
        return chosen.published, chosen.blocked

    def completions(self, body: Completion) -> Completions:
        """Return the object that answers a completion."""
        body.check(self.limits)
        published, blocked = self.asked(body, body.model)
        return Completions(published.seats, self.turns, self.window, blocked)

    # Questions of hebblm's own; each is computed in one turn

    def suggest(self, body: Suggest, gone: threading.Event) -> Suggestions:
        """Return the most probable next words, without those never to suggest."""
        published, blocked = self.asked(body)
        context, typed = self._context(body)
        folded = {word.casefold() for word in blocked}

        def work() -> Suggestions:
            with published.seats.take(self._ids(published, context)) as seat:
                answer = suggest(
                    seat.session,
                    context,
                    body.n + len(folded),
                    typed=typed,
                    effort=SearchEffort(body.budget, body.least),
                    beginning=seat,
                )
            kept = [one for one in answer if one.word.casefold() not in folded]
            return Suggestions(kept[: body.n], answer.bound, exact=answer.exact)

        return self.turns.call(work, gone)

    def explain(self, body: Suggest, gone: threading.Event) -> list[Explanation]:
        """Return why the most probable next words are suggested."""
        published, blocked = self.asked(body)
        context, typed = self._context(body)
        folded = {word.casefold() for word in blocked}

        def work() -> list[Explanation]:
            with published.seats.take(self._ids(published, context)) as seat:
                answer = explain(
                    seat.session,
                    published.laid,
                    context,
                    body.n + len(folded),
                    typed=typed,
                    effort=SearchEffort(body.budget, body.least),
                    beginning=seat,
                )
            return [one for one in answer if one.word.casefold() not in folded][: body.n]

        return self.turns.call(work, gone)

    def rank(self, body: Rank, gone: threading.Event) -> list[RankedText]:
        """Return alternatives, best first."""
        published, _ = self.asked(body)

        def work() -> list[RankedText]:
            session = published.seats.session.another()
            return rank(
                session, body.alternatives, body.before, prior=body.prior, weight=body.weight
            )

        return self.turns.call(work, gone)

    def _context(self, body: Suggest) -> tuple[str, str]:
        if not 1 <= body.n <= self.limits.words:
            raise refused("n", f"n = {body.n} must lie between 1 and {self.limits.words}")
        if body.typed is not None:
            return body.prefix, body.typed
        return split_typed(body.prefix)

    def _ids(self, published: Published, context: str) -> list[int]:
        """Return the ids of a context, which must fit the window."""
        ids: list[int] = published.seats.session.ids(context).tolist()
        Completions(published.seats, self.turns, self.window).check_window(len(ids))
        return ids

    # Tokens

    def tokenize(self, prompt: str, *, special: bool) -> list[int]:
        """Return the ids of a text."""
        if special and self.tokenizer is not None:
            answer: list[int] = self.tokenizer.encode(prompt, verbose=False)
            return answer
        vocabulary = self.memories.get(DEFAULT).published.seats.session.vocabulary
        return list(vocabulary.encode(prompt, include=False).ids)

    def detokenize(self, ids: list[int]) -> str:
        """Return the text of some ids."""
        vocabulary = self.memories.get(DEFAULT).published.seats.session.vocabulary
        for index in ids:
            if not 0 <= index < len(vocabulary):
                raise refused("tokens", f"id {index} is not between 0 and {len(vocabulary) - 1}")
        return vocabulary.join(ids)

    def tokenizer_info(self) -> dict[str, Any]:
        """Return the special tokens, and the chat template if there is one."""
        vocabulary, tokenizer = self.model.vocabulary, self.tokenizer
        if tokenizer is None:
            end = vocabulary[vocabulary.start]
            return {
                "tokenizer_class": "words",
                "bos_token": None,
                "eos_token": end,
                "pad_token": None,
                "unk_token": None if vocabulary.unknown is None else vocabulary[vocabulary.unknown],
                "chat_template": None,
                "model_max_length": self.window,
            }
        names = ("bos_token", "eos_token", "pad_token", "unk_token", "chat_template")
        return {
            "tokenizer_class": type(tokenizer).__name__,
            **{name: getattr(tokenizer, name, None) for name in names},
            "model_max_length": self.window,
        }

    def chat_ends(self) -> list[str]:
        """Return the texts of tokens that end a turn, in the model's own configuration."""
        if not isinstance(self.model.model, HuggingFaceModel):
            return []
        ends = self.model.model.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return [self.tokenizer.decode(end) for end in ends if end is not None]


def pieces_of(completions: Completions, body: Completion, gone: threading.Event) -> Iterator[Piece]:
    """Yield the parts of the answers to a completion; a mistake in it is the client's.

    Raises:
        ApiError: a prompt that cannot be read.
    """
    try:
        yield from completions.answers(body, gone)
    except UserError as error:
        raise refused("prompt", str(error)) from error


def counted(usage: Usage, count: Callable[[str, int], None]) -> None:
    """Count the tokens of a request."""
    count("prompt", usage.prompt)
    count("completion", usage.completion)
