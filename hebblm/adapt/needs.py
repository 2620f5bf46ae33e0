"""What a rule needs beside the base's hidden states."""

from __future__ import annotations

from dataclasses import dataclass

from hebblm.adapt.settings import MbpaConfig


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be at hand, or is counted, because of a rule; that of a combination is ``a | b``.

    Args:
        retrieval: neighbours from the memory.
        window: how many of the latest pairs it looks back at.
        descents: the MbPA that it rests on.
    """

    retrieval: bool = False
    window: int = 0
    descents: tuple[MbpaConfig, ...] = ()

    def __or__(self, other: Needs) -> Needs:
        """Return what both need together."""
        descents = dict.fromkeys((*self.descents, *other.descents))
        return Needs(self.retrieval or other.retrieval, max(self.window, other.window), tuple(descents))
