"""Placing of labels beside the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move labels apart until neighbours are at least ``gap`` away, as little as a pooled shift allows.

    Labels that collide form a block centred on the mean of its members' wishes (pool adjacent violators), so
    that the order of the wishes is the order of the labels.

    Args:
        positions: where each label would like to stand, in any order.
        gap: least distance of two labels.

    Returns:
        The positions taken, in the order of the input.
    """
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    # Subtracting rank * gap turns "at least gap apart" into "never decreasing", which pooling solves.
    blocks: list[tuple[float, int]] = []  # (mean, size)
    for rank, index in enumerate(order):
        mean, size = positions[index] - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    pooled = [mean for mean, size in blocks for _ in range(size)]
    result = [0.0] * len(positions)
    for rank, index in enumerate(order):
        result[index] = pooled[rank] + rank * gap
    return result
