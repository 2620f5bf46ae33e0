"""Drafts of how a generated text goes on, so that one pass of the base reads several tokens.

Speculative decoding (Leviathan, Kalman and Matias 2023) with drafts that are looked up (He et al.
2023, REST; Saxena 2023, prompt lookup). Drafts are not random. The reader draws from its own
distribution and goes on if it draws the drafted token. That accepts the token with its probability,
and otherwise draws one of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.memory.ngram_rows import PAD
from hebblm.memory.ngrams import NGrams
from hebblm.reader.base import BaseAndTrained

# least chance of a drafted token; one more adds 0.03 to 0.06 to a pass of a small model on a CPU
PAYS = 0.08
MAX_DRAFT_TOKENS = 12  # tokens of a draft
MATCH = 3  # longest match, in tokens, that is told apart
# of drawing the token that followed so many equal tokens, or more
CHANCES = {1: 0.2, 2: 0.5, MATCH: 0.8}
PATIENCE = 4.0  # CHANCES weigh as much as so many drafted tokens
FORGETS = 0.98  # factor of the weight of earlier drafts, with each token drawn


class Drafted(NamedTuple):
    """A token that may come next, and how many tokens before it match those that it followed
    earlier.
    """

    token: int
    match: int


@dataclass(slots=True)
class Drafts:
    """Drafts for one answer, from the counts of the text read and from the answer itself.

    A draft grows while the reader is likely to draw all its tokens. It learns from earlier drafts
    how likely a match makes that: a text that does not repeat soon gets no drafts.

    Args:
        read: counts of the text read.
        text: tokens before the answer; the answer's tokens are appended to it.
    """

    read: NGrams
    text: list[int]
    # latest token after tokens of the text
    _followers: dict[tuple[int, ...], int] = field(default_factory=dict)
    # by match
    _judged: dict[int, float] = field(default_factory=lambda: dict.fromkeys(CHANCES, 0.0))
    _drawn: dict[int, float] = field(default_factory=lambda: dict.fromkeys(CHANCES, 0.0))

    def __post_init__(self) -> None:
        for at in range(len(self.text)):
            self._note(at)

    def draft(self, most: int) -> list[Drafted]:
        """Return at most ``most`` tokens that may come next."""
        drafted: list[Drafted] = []
        width = max(self.read.order, MATCH)
        chance, recent = 1.0, self.text[-width:]
        while (
            len(drafted) < min(most, MAX_DRAFT_TOKENS) and (known := self._next(recent)) is not None
        ):
            (token, match), share = known
            chance *= (
                share
                * (PATIENCE * CHANCES[match] + self._drawn[match])
                / (PATIENCE + self._judged[match])
            )
            if chance < PAYS:
                break
            drafted.append(Drafted(token, match))
            recent = [*recent, token][-width:]
        return drafted

    def take(self, token: int, drafted: Drafted | None) -> None:
        """Learn from the text's last token, and from the token drafted in its place."""
        for counts in (self._judged, self._drawn):
            counts.update({match: count * FORGETS for match, count in counts.items()})
        if drafted is not None:
            self._judged[drafted.match] += 1
            self._drawn[drafted.match] += token == drafted.token
        self._note(len(self.text) - 1)

    def _next(self, recent: Sequence[int]) -> tuple[Drafted, float] | None:
        """Return the token that followed the longest match, and its share among all that followed
        it.
        """
        matches = (match for match in sorted(CHANCES)[::-1] if match <= len(recent))
        length = next((match for match in matches if tuple(recent[-match:]) in self._followers), 0)
        known = self.read.likeliest(self.read.context_after(recent))
        match = 0 if known is None else min(known[1], MATCH)
        if known is not None and match in CHANCES and match > length:
            return Drafted(known[0], match), known[2]
        return (Drafted(self._followers[tuple(recent[-length:])], length), 1.0) if length else None

    def _note(self, at: int) -> None:
        for match in CHANCES:
            if at >= match:
                self._followers[tuple(self.text[at - match : at])] = self.text[at]


class Ahead:
    """Expectation of the next token, from a base that reads drafts ahead; see
    :func:`hebblm.online.expected.draw`.

    Args:
        base: at the place where the text begins.
        expect: log-probabilities (V,) after a state (1, D) and the tokens before it.
        past: tokens before the text.
        read: counts that drafts come from; None for no drafts.
    """

    def __init__(
        self,
        base: BaseAndTrained,
        expect: Callable[[Tensor, Sequence[int]], Tensor],
        past: Sequence[int],
        read: NGrams | None,
    ) -> None:
        self._base = base
        self._expect = expect
        self._text = [token for token in past if token != PAD]
        self._drafts = None if read is None else Drafts(read, self._text)
        self._ahead: list[Drafted] = []  # read, but not drawn so far
        self._states = torch.empty(0)  # (1 + K, D) before and after each of them
        self._begun = False
        if read is not None:
            base.max_rewind  # noqa: B018 - raises here if the base cannot go back

    def __call__(self, ids: Tensor) -> Tensor:
        """Return log-probabilities (V,) after tokens (N,), which follow those of the last call."""
        drafted = self._ahead.pop(0) if self._ahead else None
        for token in ids[
            0 if self._begun else 1 :
        ].tolist():  # the first is the last one of the past
            self._text.append(token)
            if self._drafts is not None:
                self._drafts.take(token, drafted)
        self._begun = True
        if drafted is not None and drafted.token == int(ids[-1]):
            self._states = self._states[1:]
        else:
            if drafted is not None:
                self._base.rewind(len(self._ahead) + 1)
            self._ahead = (
                []
                if self._drafts is None or len(ids) > 1
                else self._drafts.draft(self._base.max_rewind - 1)
            )
            inputs = torch.cat([ids, ids.new_tensor([ahead.token for ahead in self._ahead])])
            self._states = self._base.read(inputs)[-1 - len(self._ahead) :]
        return self._expect(self._states[:1], self._text)
