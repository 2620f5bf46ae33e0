"""What the measurements of retrieval, of a whole evaluation and of training can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from awd_lstm import ARCHITECTURES
from hebblm.adapt.methods import DEFAULT_METHODS, DYNAMIC, named
from hebblm.bench.settings import BenchConfig, StatesConfig, each_at_least
from hebblm.errors import UserError
from hebblm.models.presets import check_preset

METHODS = tuple(name for name in DEFAULT_METHODS if name != DYNAMIC)


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


@dataclass(frozen=True)
class EvalConfig(StatesConfig):
    """Cost of a whole evaluation.

    Args:
        arch: architecture that reads, with untrained weights; a checkpoint reads with its own.
        vocabulary: classes V of the synthetic head.
        memory_sizes: entries that the memory holds before the stream.
        index: exact, auto, or a FAISS factory string.
        dtype: of the stored keys, float32 or float16.
        methods: comma-separated; all that share one base by default.
        tokens: of the stream, for the cost by memory size.
        currency_tokens: of the stream on which an update at every token is compared with one a mini-batch.
        stream_tokens: of the stream over which the cost a token is followed.
        streams: in how many parts side by side the same tokens are read, beside one.
    """

    arch: str = "awd_lstm_ptb"
    vocabulary: int = 10_000
    memory_sizes: list[int] = field(default_factory=lambda: [10_000, 100_000], metadata={"nargs": "+"})
    index: str = "auto"
    dtype: str = "float32"
    methods: str = ",".join(METHODS)
    tokens: int = 1000
    currency_tokens: int = 500
    stream_tokens: int = 10_000
    streams: list[int] = field(default_factory=lambda: [8, 32], metadata={"nargs": "+"})

    def __post_init__(self) -> None:
        super().__post_init__()
        each_at_least(1, vocabulary=self.vocabulary, memory_sizes=self.memory_sizes)
        each_at_least(1, tokens=self.tokens, currency_tokens=self.currency_tokens)
        each_at_least(2 * self.batch, stream_tokens=self.stream_tokens)
        each_at_least(2, streams=self.streams)
        if self.arch not in ARCHITECTURES:
            raise UserError(f"unknown arch {self.arch!r}; choose from {', '.join(ARCHITECTURES)}")
        for name in self.names():
            if name.startswith(DYNAMIC):
                raise UserError(
                    f"method {name!r} moves a base of its own; it is measured beside the others anyway"
                )

    def names(self) -> list[str]:
        """Return the methods by name."""
        return named(self.methods)

    def longest(self) -> int:
        """Return the tokens of the longest stream."""
        return max(self.tokens, self.currency_tokens, self.stream_tokens)


@dataclass(frozen=True)
class TrainConfig(BenchConfig):
    """Speed and memory of training.

    Args:
        preset: tiny, small, paper.
        vocabulary: classes V; the ids are drawn by Zipf's law, as time does not depend on what they say.
        segments: optimiser steps in a round.
    """

    preset: list[str] = field(default_factory=lambda: ["tiny", "small"], metadata={"nargs": "+"})
    vocabulary: list[int] = field(default_factory=lambda: [10_000, 33_278], metadata={"nargs": "+"})
    segments: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        each_at_least(1, vocabulary=self.vocabulary, segments=self.segments)
        for name in self.preset:
            check_preset(name)
