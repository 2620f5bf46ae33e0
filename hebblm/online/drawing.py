"""Text that a model draws, one token after the other, and how it follows what was there before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.online.prompts import Prompt, rest_of
from hebblm.text.piece_texts import PieceTexts, decoded, whole_characters
from hebblm.text.vocabulary import Vocabulary


class Answer:
    """The text of drawn tokens by itself.

    Args:
        vocabulary: of the model.
    """

    lasts: ClassVar[bool] = False
    """Whether further tokens only add to the text of those before them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def text(self, drawn: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self.vocabulary.join(drawn)

    def barred(self, drawn: Sequence[int]) -> Tensor | None:
        """Return which tokens (V,) cannot follow; None if all can."""
        return None

    def fits(self, drawn: Sequence[int]) -> bool:
        """Return whether tokens that were not barred make a text."""
        return True


class PieceAnswer(Answer):
    """The text that pieces add to a prompt; it holds whole characters alone.

    Args:
        vocabulary: of the model.
        pieces: what each piece adds to a text.
        prompt: the prompt, whose spaces and letters the first pieces write again.
        begins: whether a text begins with the first piece.
        before: bytes at the end of the prompt that begin a character.
    """

    lasts = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        pieces: PieceTexts,
        prompt: Prompt,
        *,
        begins: bool,
        before: bytes = b"",
    ) -> None:
        super().__init__(vocabulary)
        self._pieces, self._prompt, self._before = pieces, prompt, before
        self._begins = begins and pieces.space_first

    def text(self, drawn: Sequence[int]) -> str:
        return self.added(whole_characters(self._data(drawn)))

    def added(self, text: str) -> str:
        """Return the part of the text of pieces that is not in the prompt."""
        return rest_of(text.removeprefix(" ") if self._begins else text, self._prompt)

    def barred(self, drawn: Sequence[int]) -> Tensor | None:
        text = decoded(self._data(drawn))
        within = text is not None and text.partial
        return ~self._pieces.continuing if within else self._pieces.continuing

    def fits(self, drawn: Sequence[int]) -> bool:
        return decoded(self._data(drawn)) is not None

    def _data(self, drawn: Sequence[int]) -> bytes:
        return self._before + b"".join(self._pieces.data[index] for index in drawn)


class WordAnswer(Answer):
    """The text that words add to a prompt.

    Args:
        vocabulary: of the model.
        last: id of the last token before the answer.
        prompt: the prompt, whose spaces and letters the first word writes again.
    """

    def __init__(self, vocabulary: Vocabulary, last: int, prompt: Prompt) -> None:
        super().__init__(vocabulary)
        self._line = [] if last == vocabulary.start else [last]
        self._prompt = prompt

    def text(self, drawn: Sequence[int]) -> str:
        before, whole = (self.vocabulary.join([*self._line, *more]) for more in ((), drawn))
        text = (
            whole[len(before) :] if whole.startswith(before) else f" {self.vocabulary.join(drawn)}"
        )
        if self._prompt.spaces or self._prompt.typed:
            text = text.lstrip(" ")[len(self._prompt.typed) :]
        return text


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn from probabilities.

    Args:
        temperature: T in ``P^(1/T)``; 0 takes the most probable token each time.
        seed: of the random draw.
        top_k: draw among so many most probable tokens, and those as probable as the last of them;
            None draws among all.
        top_p: draw among the fewest most probable tokens that have this probability together.

    Raises:
        UserError: a temperature that is negative or infinite, or a ``top_p`` that is not above 0
            and at most 1.
    """

    temperature: float = 1.0
    seed: int = 0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise UserError(
                f"temperature = {self.temperature!r:.60} must be a number of at least 0"
            )
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise UserError(f"top_p = {self.top_p!r:.60} must be above 0 and at most 1")

    def weights(self, scores: Tensor) -> Tensor:
        """Return probabilities (V,) at the temperature, from log-probabilities (V,) in nats."""
        # even with temperature 1e-320
        return ((scores - scores.max()) / (self.temperature or 1.0)).softmax(0)

    def kept(self, weights: Tensor) -> Tensor:
        """Return weights (V,) that sum to one, with 0 for what ``top_k`` and ``top_p`` leave
        out.
        """
        if self.top_k is not None and self.top_k < len(weights):
            least = weights.topk(self.top_k).values[-1]
            weights = torch.where(weights < least, 0.0, weights)
        weights = weights / weights.sum()
        if self.top_p < 1:
            ascending, order = weights.sort()
            out = ascending.cumsum(0) <= 1 - self.top_p
            out[-1] = False  # one is always left
            weights = weights.index_fill(0, order[out], 0.0)
            weights = weights / weights.sum()
        return weights

    def chooser(self) -> Callable[[Tensor], int]:
        """Return a function that draws an index by weights (V,), or takes the largest at
        temperature 0.
        """
        if self.temperature == 0:
            return lambda weights: int(weights.argmax())
        generator = torch.Generator().manual_seed(self.seed)
        return lambda weights: int(torch.multinomial(self.kept(weights), 1, generator=generator))


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


Ending = Literal["stop", "length"]
"""Why an answer ends: it has said all, or it has all the tokens that were asked for."""


class Drawn(NamedTuple):
    """A step of an answer.

    Args:
        text: what is certain of the answer now and was not before, in whole characters.
        token: id of the token drawn; None for the last step, which draws none.
        log_prob: its adapted log-probability before temperature, nats.
        top: the most probable tokens in its place, each with its log-probability, nats.
        end: why the answer ends, at its last step.
        again: whether the token begins with letters that the prompt has already.
    """

    text: str
    token: int | None = None
    log_prob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()
    end: Ending | None = None
    again: bool = False


class _Text:
    """The text of an answer while it grows: what of it may be shown.

    Args:
        answer: the text of the answer's tokens.
        until: strings that end the answer, which does not contain them.
    """

    def __init__(self, answer: Answer, until: Sequence[str]) -> None:
        self._answer, self._until = answer, [end for end in until if end]
        self._shown, self._before = "", ""
        self.ended = False

    def after(self, drawn: Sequence[int], *, last: bool = False) -> str:
        """Return the part of the text that may be shown after some tokens and was not before.

        A text that might be the beginning of a string that ends it waits. So does what the next
        word may change in a text of words.
        """
        text = self._answer.text(drawn)
        places = [text.index(end) for end in self._until if end in text]
        if places:
            self.ended = True
            return self._show(text[: min(places)])
        certain = text
        if not last:
            if not self._answer.lasts:
                certain = _in_common(text, self._before)
            certain = certain[: len(certain) - self._begun(certain)]
        self._before = text
        return self._show(certain)

    def _begun(self, text: str) -> int:
        """Return how many letters at the end of a text may begin a string that ends it."""
        longest = max(map(len, self._until), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(end.startswith(text[-count:]) for end in self._until):
                return count
        return 0

    def _show(self, text: str) -> str:
        new = text[len(self._shown) :]
        self._shown += new
        return new


def draw_steps(  # noqa: PLR0913 - what an answer follows, and what is wanted of it
    expect: Callable[[Tensor], Tensor],
    ids: Tensor,
    answer: Answer,
    *,
    begun: Sequence[int] = (),
    most: int,
    sampling: Sampling,
    until: Sequence[str],
    top: int = 0,
    choose: Callable[[Tensor], int] | None = None,
) -> Iterator[Drawn]:
    """Draw tokens one after the other, and yield a step for each, then one that draws none.

    Args:
        expect: returns log-probabilities (V,) after tokens (N,), which follow those of the last
            call.
        ids: (N,) the tokens before the answer.
        answer: the text of the answer's tokens.
        begun: tokens that the answer has already.
        most: number of tokens to draw.
        sampling: how each is drawn.
        until: strings that end the answer, which does not contain them.
        top: number of most probable tokens that each step lists.
        choose: returns an index of weights (V,); None for that of ``sampling``.
    """
    drawn, vocabulary = [*begun], answer.vocabulary
    end: Ending = "length"
    choose = choose or sampling.chooser()
    text = _Text(answer, until)
    first = text.after(drawn)  # what the tokens at the beginning of the answer show
    while len(drawn) < len(begun) + most and not text.ended:
        log_probs = expect(ids).cpu().double()
        scores = log_probs.clone()
        if vocabulary.unknown is not None:
            scores[vocabulary.unknown] = -torch.inf
        if (barred := answer.barred(drawn)) is not None:
            scores[: len(barred)][barred[: len(scores)]] = -torch.inf
        chosen = _chosen(scores, answer, drawn, sampling, choose)
        if chosen is None:
            end = "stop"
            break
        log_prob, listed = float(log_probs[chosen]), most_probable_of(log_probs, top)
        if chosen == vocabulary.end:
            end = "stop"
            yield Drawn(first, chosen, log_prob, listed)
            first = ""
            break
        drawn.append(chosen)
        yield Drawn(first + text.after(drawn), chosen, log_prob, listed)
        first = ""
        ids = ids.new_tensor([chosen])
    if text.ended:
        end = "stop"
        yield Drawn(first, end=end)
        return
    yield Drawn(first + text.after(drawn, last=True), end=end)


def draw(
    expect: Callable[[Tensor], Tensor],
    ids: Tensor,
    answer: Answer,
    *,
    begun: Sequence[int] = (),
    most: int,
    sampling: Sampling,
    until: Sequence[str],
) -> str:
    """Return the text of tokens that are drawn one after the other; see :func:`draw_steps`."""
    steps = draw_steps(expect, ids, answer, begun=begun, most=most, sampling=sampling, until=until)
    return "".join(step.text for step in steps)


def _in_common(text: str, other: str) -> str:
    """Return the beginning that two texts share."""
    count = 0
    while count < min(len(text), len(other)) and text[count] == other[count]:
        count += 1
    return text[:count]


def most_probable_of(log_probs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """Return the indices of the largest log-probabilities (V,), the largest first, with these."""
    if not count:
        return ()
    best = log_probs.topk(min(count, len(log_probs)))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _chosen(
    scores: Tensor,
    answer: Answer,
    drawn: Sequence[int],
    sampling: Sampling,
    choose: Callable[[Tensor], int],
) -> int | None:
    """Return a token that makes a text with those before it, by its log-probability; None if none
    does.
    """
    while scores.max() > -torch.inf:
        index = choose(sampling.weights(scores))
        if index == answer.vocabulary.end or answer.fits([*drawn, index]):
            return index
        scores[index] = -torch.inf
    return None
