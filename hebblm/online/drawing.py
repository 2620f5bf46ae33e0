"""Text that a model draws, one token after the other, and how it follows what was there before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
        prompt: the prompt, whose blanks and letters the first pieces write again.
        begins: whether a text begins with the first piece.
    """

    def __init__(
        self, vocabulary: Vocabulary, pieces: PieceTexts, prompt: Prompt, *, begins: bool
    ) -> None:
        super().__init__(vocabulary)
        self._pieces, self._prompt = pieces, prompt
        self._begins = begins and pieces.blank_first

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
        return b"".join(self._pieces.data[index] for index in drawn)


class WordAnswer(Answer):
    """The text that words add to a prompt.

    Args:
        vocabulary: of the model.
        last: id of the last token before the answer.
        prompt: the prompt, whose blanks and letters the first word writes again.
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
        if self._prompt.blanks or self._prompt.typed:
            text = text.lstrip(" ")[len(self._prompt.typed) :]
        return text


def chooser(temperature: float, seed: int) -> Callable[[Tensor], int]:
    """Return a function that draws an index by weights (N,), or takes the largest where the
    temperature is 0.
    """
    if not isinstance(temperature, float | int) or not 0 <= temperature < math.inf:
        raise UserError(f"temperature = {temperature!r:.60} must be a number of at least 0")
    if temperature == 0:
        return lambda weights: int(weights.argmax())
    generator = torch.Generator().manual_seed(seed)
    return lambda weights: int(torch.multinomial(weights, 1, generator=generator))


def draw(
    expect: Callable[[Tensor], Tensor],
    ids: Tensor,
    answer: Answer,
    *,
    begun: Sequence[int] = (),
    most: int,
    temperature: float,
    choose: Callable[[Tensor], int],
    until: Sequence[str],
) -> str:
    """Return the text of tokens that are drawn one after the other.

    Args:
        expect: returns log-probabilities (V,) after tokens (N,), which follow those of the last
            call.
        ids: (N,) the tokens before the answer.
        answer: the text of the answer's tokens.
        begun: tokens that the answer has already.
        most: number of tokens to draw.
        temperature: T in ``P^(1/T)``, 0 for the most probable.
        choose: returns an index of weights (V,).
        until: strings that end the answer, which does not contain them.
    """
    drawn, vocabulary = [*begun], answer.vocabulary
    while len(drawn) < len(begun) + most:
        scores = expect(ids).cpu().double()
        if vocabulary.unknown is not None:
            scores[vocabulary.unknown] = -torch.inf
        if (barred := answer.barred(drawn)) is not None:
            scores[: len(barred)][barred[: len(scores)]] = -torch.inf
        chosen = _chosen(scores, answer, drawn, temperature, choose)
        if chosen is None or chosen == vocabulary.end:
            break
        drawn.append(chosen)
        text = answer.text(drawn) if until else ""
        ends = [text.index(end) for end in until if end and end in text]
        if ends:
            return text[: min(ends)]
        ids = ids.new_tensor([chosen])
    return answer.text(drawn)


def _chosen(
    scores: Tensor,
    answer: Answer,
    drawn: Sequence[int],
    temperature: float,
    choose: Callable[[Tensor], int],
) -> int | None:
    """Return a token that makes a text with those before it, by its log-probability; None if none
    does.
    """
    while scores.max() > -torch.inf:
        # even with temperature 1e-320
        weights = ((scores - scores.max()) / (temperature or 1.0)).softmax(0)
        index = choose(weights)
        if index == answer.vocabulary.end or answer.fits([*drawn, index]):
            return index
        scores[index] = -torch.inf
    return None
