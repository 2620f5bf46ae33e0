"""The end of a prompt: which letters of a word are typed, and from which place a model goes on with
them.

A tokenizer cuts ``Grabbit`` and ``Gra`` in different places, so that no model has seen the pieces
of ``Gra`` go on with ``bbit``. The model is asked at the last place where every tokenizer cuts,
before the space of the word, and what it expects there is narrowed to texts that begin with the
letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.online.word_beam import TOLERANCE, Expect, Place
from hebblm.text.graphemes import graphemes
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.word_ends import is_unspaced

_LETTERS = re.compile(r"\S*\Z")
_SPACES = re.compile(r"[^\S\n]*\Z")
MOST_ROWS = 256  # beginnings of the letters that a model reads


class Prompt(NamedTuple):
    """A prompt, cut before the word that is being typed.

    Args:
        context: the text before the word and the spaces before it.
        spaces: those spaces.
        typed: the letters typed so far.
    """

    context: str
    spaces: str
    typed: str

    @classmethod
    def of(cls, context: str, typed: str = "") -> Prompt:
        """Return the prompt of a context and the letters after it."""
        spaces = _SPACES.search(context)
        assert spaces is not None
        return cls(context[: spaces.start()], spaces[0], typed)

    @classmethod
    def split(cls, text: str) -> Prompt:
        """Return the prompt of a text whose last word is being typed.

        In a script without spaces every letter may end a word, so that none of them counts as
        typed. Nor does punctuation that stands alone.
        """
        letters = _LETTERS.search(text)
        assert letters is not None
        begin = letters.start() if any(map(str.isalnum, letters[0])) else len(text)
        for grapheme in graphemes(letters[0]):
            if is_unspaced(grapheme):
                begin = letters.start() + letters[0].rindex(grapheme) + len(grapheme)
        return cls.of(text[:begin], text[begin:])

    def place(self, before: str, *, space_first: bool = False) -> Place:
        """Return where the word is expected.

        Args:
            before: the text before the prompt, or its end.
            space_first: whether the tokenizer puts a space before a text.
        """
        before += self.context
        fresh = not before or before[-1].isspace()
        spaces = self.spaces or (" " if space_first and not before and self.typed else "")
        if spaces or (fresh and self.typed):
            return Place((spaces + self.typed).encode(), len(spaces.encode()))
        if self.typed:  # the context may lack the space before them
            return Place(self.typed.encode(), stripped=True)
        return Place(new=not fresh, unspaced=bool(before) and is_unspaced(before[-1]))


def split_typed(text: str) -> tuple[str, str]:
    """Return a text up to the word at its end, and the letters of that word."""
    context, spaces, typed = Prompt.split(text)
    return context + spaces, typed


def rest_of(text: str, prompt: Prompt) -> str:
    """Return a text that begins with the spaces and letters of a prompt without these."""
    if prompt.typed and not prompt.spaces:
        text = text.lstrip(" \t")
    return text[len(prompt.spaces + prompt.typed) :]


def spelled(
    expect: Expect,
    pieces: PieceTexts,
    place: Place,
    choose: Callable[[Tensor], int],
    temperature: float,
) -> tuple[int, ...] | None:
    """Return pieces that write the target of a place and perhaps more, drawn as the model would
    among those that do.

    Args:
        expect: returns log-probabilities (R, V) in nats after R rows of pieces, adapted and not.
        pieces: what each piece does to the text before it.
        place: the target.
        choose: returns an index of weights (N,): a random one, or the largest.
        temperature: T in ``P^(1/T)``, 0 for P itself.

    Returns:
        The pieces; None if the model gives the target no probability.
    """
    # beginnings, and what each further piece (V,) gives to the target
    spellings: list[tuple[tuple[int, ...], Tensor]] = []
    left: dict[tuple[int, ...], tuple[float, bytes]] = {(): (1.0, b"")}
    covered = 0.0
    while (
        left
        and len(spellings) < MOST_ROWS
        and sum(mass for mass, _ in left.values()) > TOLERANCE * covered
    ):
        best = max(mass for mass, _ in left.values())
        rows = [row for row, (mass, _) in left.items() if mass >= best / 4][:32]
        log_probs = expect(rows)[0].double().cpu()
        for row, row_log_probs in zip(rows, log_probs, strict=True):
            mass, data = left.pop(row)
            weights = mass * (row_log_probs / (temperature or 1.0)).softmax(0)
            letters = data.lstrip(b" \t") if place.stripped else data
            covers, begins = pieces.towards(
                place.target[len(letters) :], stripped=place.stripped and not letters
            )
            weights = torch.where(pieces.never, 0.0, weights)
            spellings.append((row, torch.where(covers, weights, 0.0)))
            covered += float(spellings[-1][1].sum())
            for index in (begins & (weights > 0)).nonzero()[:, 0].tolist():
                left[*row, index] = float(weights[index]), data + pieces.data[index]
    if not covered:
        return None
    begun, weights = spellings[
        choose(
            torch.stack(
                [
                    row_log_probs.max() if not temperature else row_log_probs.sum()
                    for _, row_log_probs in spellings
                ]
            )
        )
    ]
    return (*begun, choose(weights))
