"""What a rule asks of the context that it predicts from, and its parts that learn while it reads; loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.settings import Section

L_co = TypeVar("L_co", covariant=True)


class Learned(Protocol):
    """Statistics of shares over the tokens already scored."""

    def after(self, evidence: Sequence[Any]) -> Self:
        """Statistics after more tokens, all scored with the shares as they are; nan where one says nothing."""

    @property
    def as_floats(self) -> tuple[float, ...]:
        """All that is known, to be saved."""

    def from_floats(self, numbers: Sequence[float]) -> Self:
        """Statistics as they were when :attr:`as_floats` were saved."""


class Learner(Protocol[L_co]):
    """Part of a rule that learns from the tokens already scored how to mix what it is made of."""

    @property
    def learned_as(self) -> str:
        """Name and version under which its shares are saved; a change of what the numbers mean needs a new version."""

    @property
    def initial(self) -> L_co:
        """Share before anything was scored."""

    def evidence(self, batch: Any, targets: Tensor) -> Tensor:
        """What each of ``targets`` (N,) says of the shares, (N,) or (N, E) float64.

        ``batch`` is an :class:`~hebblm.adapt.batch.EvalBatch`, which is made of a context that knows its learners.
        """


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a rule: what is at hand, or counted, because of it; of a combination, ``a | b``."""

    retrieval: bool = False  # neighbours from the memory
    window: int = 0  # how many of the latest pairs it looks back at
    descents: tuple[Section, ...] = ()  # settings of the MbPA that it rests on
    shares: tuple[Learner[Any], ...] = ()  # its parts that learn, those within others first

    def __or__(self, other: Needs) -> Needs:
        descents = dict.fromkeys((*self.descents, *other.descents))
        shares = dict.fromkeys((*self.shares, *other.shares))
        window = max(self.window, other.window)
        return Needs(self.retrieval or other.retrieval, window, tuple(descents), tuple(shares))


class Needing(Protocol):
    """Anything that says what it needs, as every rule does."""

    @property
    def needs(self) -> Needs:
        """Requirements of it."""
