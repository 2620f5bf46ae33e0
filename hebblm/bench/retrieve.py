"""The cost of finding neighbours by the memory's index, against comparing with every entry."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hebblm.bench import naive
from hebblm.bench.machine import resident_bytes
from hebblm.bench.record import Row
from hebblm.bench.settings import StatesConfig, each_at_least
from hebblm.bench.source import Source, SyntheticSource, open_source
from hebblm.bench.timing import Tick, interleave, stopwatch
from hebblm.memory import AnyMemory, MemoryConfig, build_memory

CLASSES = 1000  # of the synthetic source; labels do not matter to a search
SLACK = 1e-5  # relative rounding of a distance


@dataclass(frozen=True)
class RetrieveConfig(StatesConfig):
    """Cost and recall of retrieval.

    Args:
        dim: width of the synthetic states, D.
        entries: sizes of the memory; both forms keep their own copy of the keys, at most 3.2 kB an entry at D = 400.
        index: exact, auto, or a FAISS factory string.
        dtype: of the stored keys, float32 or float16.
        recall_queries: queries on which recall is measured.
    """

    dim: int = 400
    entries: list[int] = field(default_factory=lambda: [10_000, 100_000, 1_000_000], metadata={"nargs": "+"})
    index: str = "auto"
    dtype: str = "float32"
    recall_queries: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        each_at_least(1, dim=self.dim, recall_queries=self.recall_queries)
        each_at_least(self.k, entries=self.entries)


def case_count(config: RetrieveConfig) -> int:
    """Return the number of rows that :func:`measure` yields."""
    return len(config.entries) * (1 + (config.checkpoint is not None))


def measure(config: RetrieveConfig, device: torch.device, tick: Tick) -> Iterator[Row]:
    """Return one row a source and size of the memory.

    Args:
        config: sizes and settings.
        device: where to compute.
        tick: called after every round.
    """
    sources: list[Source] = []
    if config.checkpoint is not None:
        sources.append(open_source(config.checkpoint, config.corpus, device))
    sources.append(SyntheticSource(config.dim, CLASSES, seed=config.seed, device=device))
    return (
        _retrieval(config, source, entries, device, tick)
        for source in sources
        for entries in sorted(config.entries)
    )


@torch.no_grad()
def _retrieval(config: RetrieveConfig, source: Source, entries: int, device: torch.device, tick: Tick) -> Row:
    """Build the memory, then search it and every entry in turn."""
    dim = source.head.weight.shape[1]
    keys = torch.empty(entries, dim, device=device)  # (M, D)
    labels = torch.empty(entries, dtype=torch.int64, device=device)
    filled = 0
    for some, words in source.entries(entries):
        keys[filled : filled + len(some)], labels[filled : filled + len(some)] = some, words
        filled += len(some)
    norms = _norms(keys)
    memory, build_seconds, grown = _build(config, keys, labels)

    count = max(config.batch * (config.repeats + 1), config.recall_queries)
    queries, _ = source.queries(count)
    batches = torch.split(queries, config.batch)[: count // config.batch]
    turns = {"exact": itertools.cycle(batches), "index": itertools.cycle(batches)}
    timings = interleave(
        {
            "exact": stopwatch(
                lambda: naive.exact_search(next(turns["exact"]), keys, norms, config.k), config.batch, device
            ),
            "index": stopwatch(lambda: memory.search(next(turns["index"]), config.k), config.batch, device),
        },
        config.repeats,
        tick,
    )
    values = {"recall": recall(memory, queries[: config.recall_queries], keys, norms, config.k)}
    values["build_seconds"] = build_seconds
    if grown is not None:
        values["resident_bytes_per_entry"] = grown / entries
    return Row(
        "retrieve",
        {
            "entries": entries,
            "dim": dim,
            "k": config.k,
            "batch": config.batch,
            "memory": memory.describe(),
            "source": source.describe(),
        },
        timings,
        {"index": "exact"},
        values,
    )


def _build(config: RetrieveConfig, keys: Tensor, labels: Tensor) -> tuple[AnyMemory, float, int | None]:
    """Return a memory of all entries, the seconds it took, and the bytes by which the process grew."""
    before = resident_bytes()
    started = time.perf_counter()
    memory = build_memory(keys.shape[1], MemoryConfig(index=config.index, dtype=config.dtype), keys.device)
    for some, words in zip(torch.split(keys, 65_536), torch.split(labels, 65_536), strict=True):
        memory.add(some, words)
    memory.mark_base()
    seconds = time.perf_counter() - started
    after = resident_bytes()
    grown = None if before is None or after is None else max(0, after - before)
    return memory, seconds, grown


def _norms(keys: Tensor) -> Tensor:
    """Return squared norms (M,) without a second copy of the keys."""
    return torch.cat([part.square().sum(1) for part in torch.split(keys, 65_536)])


def recall(memory: AnyMemory, queries: Tensor, keys: Tensor, norms: Tensor, k: int) -> float:
    """Return the share of the K nearest entries that the memory finds.

    An entry counts as found where its distance is within rounding of the true K-th; ties are worth the same.

    Args:
        memory: what is searched.
        queries: (N, D).
        keys: (M, D) all entries.
        norms: (M,) their squared norms.
        k: K.
    """
    found = 0
    for part in torch.split(queries, 100):
        distances, _ = naive.exact_search(part, keys, norms, k)
        # The matrix product rounds in proportion to the norms, not to the distance.
        limit = distances[:, -1:] + SLACK * (distances[:, -1:].abs() + part.square().sum(1, keepdim=True))
        found += int((memory.search(part, k).distances.to(limit) <= limit).sum())
    return found / (len(queries) * k)
