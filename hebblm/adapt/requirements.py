"""A rule's needs of its context, and its parts that learn while it reads; loads no torch."""

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
        """Return statistics after more tokens, all scored with the present shares; nan for a token
        to ignore.
        """

    @property
    def as_floats(self) -> tuple[float, ...]:
        """The statistics as numbers to save."""

    def from_floats(self, numbers: Sequence[float]) -> Self:
        """Return the statistics that :attr:`as_floats` came from."""


class Learner(Protocol[L_co]):
    """Part of a rule that learns from the scored tokens how to mix its parts."""

    @property
    def learned_as(self) -> str:
        """Name and version under which its shares are saved; numbers with a new meaning need a new
        version.
        """

    @property
    def initial(self) -> L_co:
        """Share before the first token is scored."""

    def evidence(self, batch: Any, targets: Tensor) -> Tensor:
        """Return the evidence of each of ``targets`` (N,) for the shares, (N,) or (N, E) float64.

        ``batch`` is an :class:`~hebblm.adapt.batch.EvalBatch`, whose context knows its learners.
        """


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a rule; ``a | b`` are those of a combination."""

    retrieval: bool = False  # neighbours from the memory
    window: int = 0  # number of latest pairs that it looks back at
    descents: tuple[Section, ...] = ()  # settings of the MbPA that it builds on
    mixture_weights: tuple[
        Learner[Any], ...
    ] = ()  # its parts that learn, those within others first
    # order and capacity of counts of the exact words, or None
    ngrams: tuple[int, int] | None = None

    def __or__(self, other: Requirements) -> Requirements:
        descents = dict.fromkeys((*self.descents, *other.descents))
        mixture_weights = dict.fromkeys((*self.mixture_weights, *other.mixture_weights))
        window = max(self.window, other.window)
        # one run has one order
        retrieval, ngrams = self.retrieval or other.retrieval, self.ngrams or other.ngrams
        return Requirements(retrieval, window, tuple(descents), tuple(mixture_weights), ngrams)


class HasRequirements(Protocol):
    """Anything that says what it needs, as every rule does."""

    @property
    def requirements(self) -> Requirements:
        """Requirements of this rule."""
