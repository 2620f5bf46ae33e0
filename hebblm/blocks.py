"""A few queries at a time: what they hold is still near the processor when the next operation asks for it."""

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
    """How many of ``count`` queries of so many bytes make a block, at least one; on a GPU all of them."""
    if device.type != "cpu":
        return max(1, count)
    return max(1, min(count, CPU_BYTES // max(1, bytes_each)))


def blocks(bytes_each: int, count: int, device: torch.device) -> Iterator[slice]:
    """``count`` queries block by block; one empty block of none."""
    size = block_size(bytes_each, count, device)
    return (slice(start, start + size) for start in range(0, max(1, count), size))


def side_by_side(work: Callable[[Part], None], parts: list[Part], device: torch.device) -> None:
    """Do some work without gradients on every part, each part by one of torch's threads; on a GPU one after the other.

    The operations on a block are many and small: threads that share each of them mostly wait for each other. ``work``,
    called several times at once, must write to places of its own; a single part is worked on by all threads.
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
        torch.get_num_threads()  # a thread that was not asked before forgets what it is told
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(threads, "hebblm", initializer=start)
    for _ in range(threads):
        pool.submit(int)
    started.wait()
    # What a thread sets for itself is also what threads to come begin with.
    torch.set_num_threads(threads)
    return pool


os.register_at_fork(after_in_child=_workers.cache_clear)  # threads stay behind
