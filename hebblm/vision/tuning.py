"""The best of what was tried on held-out samples."""

from __future__ import annotations

SCORES = ("accuracy", "loss")


def best(tried: list[dict[str, float]]) -> dict[str, float]:
    """Return the point with the best ``accuracy``, of several the one with the smallest ``loss``, without these two."""
    winner = max(tried, key=lambda point: (point["accuracy"], -point["loss"]))
    return {name: value for name, value in winner.items() if name not in SCORES}
