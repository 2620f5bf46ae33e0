"""A few queries at a time, so that their tensors are still in the processor's cache for the next operation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

CPU_BYTES = 12 * 2**20  # of a few queries: between the second and the third level of caches

Part = TypeVar("Part")


def block_size(bytes_each: int, count: int, device: torch.device) -> int:
    """Return how many of ``count`` queries of so many bytes make a block, at least one; on a GPU all of them."""
    if device.type != "cpu":
        return max(1, count)
    return max(1, min(count, CPU_BYTES // max(1, bytes_each)))


def blocks(bytes_each: int, count: int, device: torch.device) -> Iterator[slice]:
    """Return the blocks of ``count`` queries; without queries, one empty block."""
    size = block_size(bytes_each, count, device)
    return (slice(start, start + size) for start in range(0, max(1, count), size))


def side_by_side(work: Callable[[Part], None], parts: list[Part], device: torch.device) -> None:
    """Work on every part without gradients, each part in one of torch's threads; on a GPU one after the other.

    The operations on a block are many and small: threads that share each of them mostly wait for each other. ``work``
    is called several times at once, so each call must write to its own places. All threads work on a single part.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2 or device.type != "cpu":
        for part in parts:
            work(part)
        return

    @torch.no_grad()
    def alone(part: Part) -> None:
        work(part)

    list(_workers(threads).map(alone, parts))


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Threads that each compute alone."""
    started = Barrier(threads + 1)

    def start() -> None:
        torch.get_num_threads()  # a new thread drops this setting unless it was read there first
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(threads, "hebblm", initializer=start)
    for _ in range(threads):
        pool.submit(int)
    started.wait()
    # What a thread sets for itself is also what threads to come begin with.
    torch.set_num_threads(threads)
    return pool


os.register_at_fork(after_in_child=_workers.cache_clear)  # a forked process has none of these threads
