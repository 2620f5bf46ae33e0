"""What a rule needs beside the base's hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hebblm.adapt.settings import MbpaConfig

if TYPE_CHECKING:
    from hebblm.adapt.rules import Blend


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be at hand, or is counted, because of a rule; that of a combination is ``a | b``.

    Args:
        retrieval: neighbours from the memory.
        window: how many of the latest pairs it looks back at.
        descents: the MbPA that it rests on.
        shares: the blends whose share is learned, those within others first.
    """

    retrieval: bool = False
    window: int = 0
    descents: tuple[MbpaConfig, ...] = ()
    shares: tuple[Blend, ...] = ()

    def __or__(self, other: Needs) -> Needs:
        """Return what both need together."""
        descents = dict.fromkeys((*self.descents, *other.descents))
        shares = dict.fromkeys((*self.shares, *other.shares))
        window = max(self.window, other.window)
        return Needs(self.retrieval or other.retrieval, window, tuple(descents), tuple(shares))
