"""The cost of finding neighbours by the memory's index, against comparing with every entry."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from hebblm.memory import AnyMemory, MemoryConfig, build_memory, faiss_index
from recipes.bench import naive
from recipes.bench.configs import RetrieveConfig
from recipes.bench.machine import resident_bytes
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.source import Source, SyntheticSource, filled, open_source
from recipes.bench.timing import Turn, stopwatch

CLASSES = 1000  # of the synthetic source; labels do not matter to a search
SLACK = 1e-5  # relative rounding of a distance


def cases(config: RetrieveConfig, rounds: Rounds) -> list[Case]:
    """Return a case a source and size of the memory; the states of one source at a time are
    held.
    """
    found: list[Callable[[], States]] = []
    if config.checkpoint is not None:
        # Now, not with the first row: reading shows a bar of its own.
        states = _states(open_source(config.checkpoint, rounds.device), config)
        found.append(lambda: states)
    synthetic = SyntheticSource(config.dim, CLASSES, seed=config.seed, device=rounds.device)
    found.append(cache(partial(_states, synthetic, config)))
    return [
        partial(_retrieval, config, given, entries, rounds)
        for given in found
        for entries in sorted(config.entries)
    ]


@dataclass(frozen=True, slots=True)
class States:
    """Stored states (M, D) with labels (M,), queries (N, D), and what a measurement records about
    them.
    """

    keys: Tensor
    labels: Tensor
    queries: Tensor
    describe: dict[str, Any]


def _states(source: Source, config: RetrieveConfig) -> States:
    """Return stored entries with queries of their source: a mini-batch of its own a round, and
    those of recall.
    """
    count = max(config.batch * (config.repeats + 1), config.recall_queries)
    return States(*filled(source, max(config.entries)), source.queries(count)[0], source.describe())


@torch.no_grad()
def _retrieval(
    config: RetrieveConfig, given: Callable[[], States], entries: int, rounds: Rounds
) -> Row:
    """Build the memory, then search it and every entry in turn, and with them what a search
    consists of.
    """
    states = given()
    keys, queries, device = states.keys[:entries], states.queries, states.keys.device
    norms = torch.linalg.vector_norm(keys, dim=1).square()  # which takes no second copy of the keys
    memory, build_seconds, grown = _build(config, keys, states.labels[:entries])
    proposals = index_call(memory, config.k)
    batches = torch.split(queries, config.batch)[: len(queries) // config.batch]

    def turn(call: Callable[[Tensor], object], first: int) -> Turn:
        # Each begins with another mini-batch, so that none finds in the caches what the one before
        # it left there.
        coming = itertools.islice(itertools.cycle(batches), first, None)
        return stopwatch(lambda: call(next(coming)), config.batch, device)

    timings = rounds.times(
        {
            "exact": turn(lambda some: naive.exact_search(some, keys, norms, config.k), 0),
            "index": turn(lambda some: memory.search(some, config.k), 1),
            "ranking": turn(lambda some: memory.nearest(some, config.k), 2),
            **({} if proposals is None else {"proposals": turn(proposals, 3)}),
        }
    )
    values = {"recall": recall(memory, queries[: config.recall_queries], keys, norms, config.k)}
    values["build_seconds"] = build_seconds
    if grown is not None:
        values["resident_bytes_per_entry"] = grown / entries
    return Row(
        "retrieve",
        {
            "entries": entries,
            "dim": keys.shape[1],
            "k": config.k,
            "batch": config.batch,
            "memory": memory.describe(),
            "source": states.describe,
        },
        timings,
        {"index": "exact"},
        values,
    )


def index_call(memory: AnyMemory, k: int) -> Callable[[Tensor], object] | None:
    """The part of a search that a trained index does, None where the memory compares everything."""
    trained = memory.refresh()
    if trained is None:
        return None
    candidates = min(memory.settings()["rescore"] * k, len(trained))
    return lambda queries: trained.index.search(faiss_index.as_float32(queries), candidates)


def _build(
    config: RetrieveConfig, keys: Tensor, labels: Tensor
) -> tuple[AnyMemory, float, int | None]:
    """Return a memory of all entries, the seconds it took, and the bytes by which the process
    grew.
    """
    before = resident_bytes()
    started = time.perf_counter()
    memory = build_memory(keys.shape[1], MemoryConfig(index=config.index), keys.device)
    for some, words in zip(torch.split(keys, 65_536), torch.split(labels, 65_536), strict=True):
        memory.add(some, words)
    memory.mark_base()
    seconds = time.perf_counter() - started
    after = resident_bytes()
    grown = None if before is None or after is None else max(0, after - before)
    return memory, seconds, grown


def recall(memory: AnyMemory, queries: Tensor, keys: Tensor, norms: Tensor, k: int) -> float:
    """Return the share of the K nearest of all keys (M, D) that the memory finds.

    An entry counts as found where its distance is within rounding of the true K-th; ties are worth
    the same.
    """
    found = 0
    for part in torch.split(queries, 100):
        distances, _ = naive.exact_search(part, keys, norms, k)
        # The matrix product rounds in proportion to the norms, not to the distance.
        limit = distances[:, -1:] + SLACK * (
            distances[:, -1:].abs() + part.square().sum(1, keepdim=True)
        )
        found += int((memory.search(part, k).distances.to(limit) <= limit).sum())
    return found / (len(queries) * k)
