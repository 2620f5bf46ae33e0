"""A million tokens through every method: memory, files and time a token stay what they were at the beginning."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from hebblm.adapt.methods import METHODS
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, MemoryConfig, build_memory

from ..support import toy
from .figures import FOREVER, Case, Clock

HEADING = "A million tokens"
MENDED: tuple[str, ...] = ()
TOKENS, EVERY = 1_000_000, 1_000
K = 8
GROWTH = (
    24 << 20
)  # bytes of resident memory that may come beside the entries: pages of allocators, buffers that doubled
SLOWER = 1.5  # the last tenth may take so much longer a token than the first; the machine is not ours alone
LOSS = 4  # bytes of a token in the result of a method
ENTRY = 8 + 4 + 4 + 4 * toy.DIM  # bytes of an entry of a growing memory


@dataclass
class Watch:
    """What was measured on the way.

    Args:
        tokens: read so far.
        points: (tokens, resident bytes, open files, processor seconds) at every hundredth of the way.
    """

    total: int
    tokens: int = 0
    points: list[tuple[int, int, int, float]] = field(default_factory=list)

    def __call__(self, tokens: int) -> None:
        """Count tokens, and measure."""
        self.tokens += tokens
        while self.tokens >= (len(self.points) + 1) * self.total // 100:
            if len(self.points) in (9, 99):
                gc.collect()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            self.points.append((self.tokens, resident, len(os.listdir("/proc/self/fd")), time.process_time()))

    def defects(self, methods: int, growing: bool, slower: float) -> list[str]:
        """Return what is not flat from the first tenth to the last."""
        first, last = self.points[9], self.points[99]
        own = (last[0] - first[0]) * (LOSS * methods + (2 * ENTRY if growing else 0))  # arrays grow by half
        found = []
        if last[1] - first[1] > own + GROWTH:
            found.append(
                f"resident memory grew by {(last[1] - first[1]) >> 20} MiB, {own >> 20} of it for losses and entries"
            )
        if last[2] > first[2]:
            found.append(f"open files grew from {first[2]} to {last[2]}")
        if self.pace(89, 99) > slower * self.pace(0, 9):
            found.append(f"{1e6 * self.pace(89, 99):.0f} µs a token at the end, {1e6 * self.pace(0, 9):.0f} at first")
        return found

    def pace(self, begin: int, end: int) -> float:
        """Return processor seconds a token between two points."""
        (start, _, _, at), (stop, _, _, until) = self.points[begin], self.points[end]
        return (until - at) / max(1, stop - start)

    def note(self) -> str:
        """Return the measurements in short."""
        first, last = self.points[9], self.points[99]
        return (
            f"{first[1] >> 20} to {last[1] >> 20} MiB, {first[2]} to {last[2]} files, "
            f"{1e6 * self.pace(0, 9):.0f} to {1e6 * self.pace(89, 99):.0f} µs a token"
        )


def soak(
    memory: AnyMemory,
    names: list[str],
    *,
    growing: bool,
    moving: bool = False,
    total: int = TOKENS,
    slower: float = SLOWER,
) -> Case:
    """Read so many tokens by some methods over one memory."""
    base = toy.base_of(toy.tiny_model(), lr=1e-3 if moving else 0.0)
    stream = toy.stream_of(toy.tokens(0, total))
    context = toy.context_of(base, memory, stream, k=K)
    context.fixed = not moving
    rules = {name: METHODS[name].rule(toy.LEARNED) for name in names}
    watch, case = Watch(total), Case()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = evaluate(base, [context], rules, stream, UnionVocabulary(), Schedule(EVERY), Hooks(progress=watch))
    finally:
        torch.set_num_threads(threads)
    wrong = watch.defects(len(names), growing, slower)
    for name in names:
        finite = bool(np.isfinite(found.nll[name]).all())
        case.count("; ".join(wrong) if wrong else "" if finite else f"{name}: a loss that is not finite")
    case.note = f"methods over {total:,} tokens: {watch.note()}"
    return case


def cases(_: Path, clock: Clock = FOREVER, total: int = TOKENS, slower: float = SLOWER) -> Iterator[tuple[str, Case]]:
    """Read with each kind of memory, by all methods that it serves."""
    still = [name for name, method in METHODS.items() if not method.moving]
    moved = [name for name, method in METHODS.items() if method.moving]

    def kept(**options: object) -> Callable[[], AnyMemory]:
        return lambda: build_memory(toy.DIM, MemoryConfig(**options))  # type: ignore[arg-type]

    kinds = {
        "the latest 10,000 entries": lambda: soak(
            kept(capacity=10_000)(), still, growing=False, total=total, slower=slower
        ),
        "a memory that grows": lambda: soak(kept()(), still, growing=True, total=total, slower=slower),
        "the latest 10,000 entries, a base that learns": lambda: soak(
            kept(capacity=10_000)(), moved, growing=False, moving=True, total=total, slower=slower
        ),
    }
    for name, read in kinds.items():
        if not clock.over():
            yield name, read()
