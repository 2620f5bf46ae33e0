"""Words that are expected next: the most probable ones, or a random draw of one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.text.vocabulary import Vocabulary


class Suggestion(NamedTuple):
    """A word that may come next.

    Args:
        word: the word.
        probability: its probability after adaptation.
        unadapted: its probability under the trained base, with rows of zeros for new words.
    """

    word: str
    probability: float
    unadapted: float


class Expected(NamedTuple):
    """A word that may come next, and the tokens that it may begin with.

    Args:
        suggestion: the word.
        rest: by first token, the probability of the word's rest and end after it; 1 where a token is a word.
    """

    suggestion: Suggestion
    rest: Mapping[int, float]


def most_probable(adapted: Tensor, unadapted: Tensor, vocabulary: Vocabulary, n: int) -> list[Expected]:
    """Return the most probable next tokens, most probable first; ``<unk>`` is not a word and is left out."""
    if vocabulary.unknown is not None:
        adapted[vocabulary.unknown] = -1.0
    best = adapted.topk(min(n, int((adapted >= 0).sum()))).indices.tolist()
    return [Expected(Suggestion(vocabulary[i], float(adapted[i]), float(unadapted[i])), {i: 1.0}) for i in best]


def draw(
    expect: Callable[[Tensor], Tensor],
    ids: Tensor,
    vocabulary: Vocabulary,
    *,
    most: int,
    temperature: float,
    seed: int,
    until: Sequence[str],
) -> str:
    """Return random words, drawn one after the other."""
    if not isinstance(temperature, float | int) or not 0 <= temperature < math.inf:
        raise UserError(f"temperature = {temperature!r:.60} must be a number of at least 0")
    generator = torch.Generator().manual_seed(seed)
    drawn: list[int] = []
    while len(drawn) < most:
        scores = expect(ids).cpu()
        if vocabulary.unknown is not None:
            scores[vocabulary.unknown] = -torch.inf
        if temperature == 0:
            chosen = int(scores.argmax())
        else:
            shares = ((scores.double() - scores.max()) / temperature).softmax(0)  # even with temperature 1e-320
            chosen = int(torch.multinomial(shares, 1, generator=generator))
        if chosen == vocabulary.end:
            break
        drawn.append(chosen)
        text = vocabulary.join(drawn) if until else ""
        ends = [text.index(end) for end in until if end and end in text]
        if ends:
            return text[: min(ends)]
        ids = ids.new_tensor([chosen])
    return vocabulary.join(drawn)
