"""How far a search of words goes."""

from __future__ import annotations

from dataclasses import dataclass

LEAST = 1e-9  # probability of words that are not looked for, however many are asked for


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How far a search of words goes.

    Args:
        budget: most beginnings of words to follow; None for as many as it takes.
        least: probability below which words are not looked for.
    """

    budget: int | None = None
    least: float = LEAST


QUICK = SearchEffort(50, 0.01)  # for an answer while somebody types
THOROUGH = SearchEffort()
