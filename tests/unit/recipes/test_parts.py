"""The recipe that compares ``best`` with its parts, on every length of one reading."""

from __future__ import annotations

import numpy as np

from recipes.parts import BEST, PARTS, leads


def test_the_lead_is_over_the_part_that_is_best_on_the_tokens_so_far() -> None:
    losses = {name: np.full(3_000, 5.0, dtype=np.float32) for name in PARTS}
    losses["cache"][:2_000], losses["knn"][:2_000] = 2.0, 3.0
    losses["cache"][2_000:], losses["knn"][2_000:] = 8.0, 3.0
    losses[BEST] = np.full(3_000, 2.5, dtype=np.float32)
    found = leads(losses)
    assert {length: (row["part"], row["lead"]) for length, row in found.items()} == {
        "2000": ("cache", -0.5),
        "3000": ("knn", 0.5),
    }
