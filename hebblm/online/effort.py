"""How far a search of words goes."""

from __future__ import annotations

from dataclasses import dataclass

LEAST = 1e-9  # words less probable than this are left out, however many are asked for


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How far a search of words goes.

    Args:
        budget: most beginnings of words to follow; None for as many as it takes.
        least: words less probable than this are left out.
    """

    budget: int | None = None
    least: float = LEAST


QUICK = SearchEffort(50, 0.01)  # for an answer while somebody types
THOROUGH = SearchEffort()
