"""How much is computed at once: a few queries, whose tensors stay in the processor's cache, and by
how many threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier, Lock, local
from typing import TypeVar

import torch

CPU_BYTES = 12 * 2**20  # of a few queries: between the second and the third level of caches

Part = TypeVar("Part")


class _Counting:
    """Changes of the number of torch's threads. A thread sets its own, and with it what threads to
    come begin with.
    """

    def __init__(self) -> None:
        self.lock = Lock()  # held for a moment, while a number changes
        self.meant: list[int] = []  # the number that each block of one_thread returns to
        self.settled = local()  # says of a thread that it has its number


_counting = _Counting()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on this thread alone in the block."""
    counting = _counting
    with counting.lock:
        before = torch.get_num_threads()
        counting.meant.append(before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with counting.lock:
            torch.set_num_threads(before)
            counting.meant.remove(before)


def settle_threads() -> None:
    """Give this thread the process's number of torch's threads.

    If it computed first while another thread is in :func:`one_thread`, it would compute alone from
    then on.
    """
    counting = _counting
    if getattr(counting.settled, "done", False):
        return
    with counting.lock:
        torch.get_num_threads()  # a new thread drops what is set before it is read there first
        if counting.meant:
            torch.set_num_threads(max(counting.meant))
    counting.settled.done = True


def block_size(bytes_each: int, count: int, device: torch.device) -> int:
    """Return how many of ``count`` queries of so many bytes make a block, at least one; on a GPU
    all of them.
    """
    if device.type != "cpu":
        return max(1, count)
    return max(1, min(count, CPU_BYTES // max(1, bytes_each)))


def blocks(bytes_each: int, count: int, device: torch.device) -> Iterator[slice]:
    """Return the blocks of ``count`` queries; without queries, one empty block."""
    size = block_size(bytes_each, count, device)
    return (slice(start, start + size) for start in range(0, max(1, count), size))


def in_parallel(work: Callable[[Part], None], parts: list[Part], device: torch.device) -> None:
    """Work on every part without gradients, each part in one of torch's threads; on a GPU one after
    the other.

    The operations on a block are many and small: threads that share each of them mostly wait for
    each other. ``work`` is called several times at once, so each call must write to its own places.
    All threads work on a single part.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2 or device.type != "cpu":
        for part in parts:
            work(part)
        return

    @torch.no_grad()
    def alone(part: Part) -> None:
        work(part)

    with _counting.lock:  # threads that start meanwhile begin with another number
        pool = _workers(threads)
    list(pool.map(alone, parts))


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


def _forked() -> None:
    """Begin anew in a forked process: it has none of the threads, not even the one that holds a
    lock.
    """
    global _counting
    _counting = _Counting()
    _workers.cache_clear()


os.register_at_fork(after_in_child=_forked)
