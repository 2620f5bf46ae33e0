"""The best of what was tried on held-out samples."""

from __future__ import annotations

from dataclasses import dataclass

SCORES = ("accuracy", "loss")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice and everything that was tried for it.

    Args:
        values: the point with the best accuracy; of several the one with the smallest loss.
        tried: every point with its ``accuracy`` and ``loss`` in nats on held-out samples, as JSON.
    """

    values: dict[str, float]
    tried: list[dict[str, float]]


def best(tried: list[dict[str, float]]) -> Chosen:
    """Choose among points that each carry an ``accuracy`` and a ``loss``."""
    winner = max(tried, key=lambda point: (point["accuracy"], -point["loss"]))
    return Chosen({name: value for name, value in winner.items() if name not in SCORES}, tried)
