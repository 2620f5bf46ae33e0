"""A few queries at a time: what they hold is still near the processor when the next operation asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

CPU_BYTES = 24 * 2**20  # of a few queries, for each thread: between the second and the third level of caches


def block_size(bytes_each: int, count: int, device: torch.device) -> int:
    """Return how many of ``count`` queries of so many bytes make a block, at least one; on a GPU all of them."""
    if device.type != "cpu":
        return max(1, count)
    return max(1, min(count, torch.get_num_threads() * CPU_BYTES // max(1, bytes_each)))


def blocks(bytes_each: int, count: int, device: torch.device) -> Iterator[slice]:
    """Yield ``count`` queries block by block; one empty block of none."""
    size = block_size(bytes_each, count, device)
    return (slice(start, start + size) for start in range(0, max(1, count), size))
