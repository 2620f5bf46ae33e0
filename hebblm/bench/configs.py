"""Options of the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from awd_lstm import ARCHITECTURES
from hebblm.adapt.methods import DEFAULT_METHODS, DYNAMIC, named
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.bench.timing import MINIMUM_REPEATS
from hebblm.errors import UserError
from hebblm.models.presets import check_preset
from hebblm.suggest import unknown

HEADS = {"gpt2": (50_257, 768), "llama-3-8b": (128_256, 4096), "gemma-2-9b": (256_000, 3584)}
"""Classes V and width D of the softmax layers of well-known models."""
WINDOWS = (500, 3785)  # published for Penn Treebank and WikiText-2
METHODS = tuple(name for name in DEFAULT_METHODS if name != DYNAMIC)


@dataclass(frozen=True)
class BenchConfig:
    """Options of every measurement.

    Args:
        scale: full, or smoke: sizes that take seconds, to see what comes out; single options win over it.
        json: file for the result, with every raw time; it grows with each finished case.
        threads: of torch and FAISS; by default as many as torch takes.
        repeats: rounds that count, at least 5.
        device: auto, cpu, cuda, or one of several as cuda:1.
        seed: of the synthetic source, and of weights.
    """

    scale: Literal["smoke", "full"] = "full"
    json: Path | None = None
    threads: int | None = None
    repeats: int = 5
    device: str = "auto"
    seed: int = 1111

    def __post_init__(self) -> None:
        least = {"repeats": MINIMUM_REPEATS, "seed": 0, **self.least()}
        for name in (option.name for option in fields(self)):
            value, low = getattr(self, name), least.get(name, 1)
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int) and number < low:
                    raise UserError(f"{name} = {number} must be at least {low}")

    def least(self) -> Mapping[str, int]:
        """Return the least value of the numbers that must be larger than 1, by option."""
        return {}


@dataclass(frozen=True)
class StatesConfig(BenchConfig):
    """Options of the measurements that work on hidden states.

    Args:
        checkpoint: folder of a trained model, or the name of one that ships; adapt and retrieve measure its states
            beside the synthetic ones, eval in place of them.
        corpus: what that model was trained on, where the checkpoint does not say it.
        k: neighbours a query, K.
        batch: queries of a mini-batch.
    """

    checkpoint: Path | None = None
    corpus: str | None = None
    k: int = 200
    batch: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.corpus is not None and self.checkpoint is None:
            raise UserError(f"corpus = {self.corpus} has no meaning without a model; add --checkpoint DIR")


@dataclass(frozen=True)
class AdaptConfig(StatesConfig):
    """Cost and error of adaptation.

    Args:
        dim: width of the synthetic states, D.
        vocabulary: classes of the synthetic heads, V.
        steps: gradient steps S.
        lr: learning rate for each number of steps, relative to curvature; by default that of mbpa.
        neighbors: further K whose cost is measured.
        windows: of the cache, one for each vocabulary.
        entries: of the memory that is searched.
        naive_tokens: tokens of the plain form in a round.
        exact_tokens: tokens of the exact form in a round.
        error_tokens: tokens on which the fast form is compared with the exact one.
        heads: large softmax layers with random weights, by name; 16 GB of memory are enough for all.
        network_hidden: units of the network that is adapted as a whole, 784 pixels before them and 10 classes behind.
        network_entries: pictures that its memory holds.
        network_neighbors: K of its queries.
        network_steps: its gradient steps.
    """

    dim: int = 400
    vocabulary: list[int] = field(default_factory=lambda: [10_000, 33_278], metadata={"nargs": "+"})
    steps: list[int] = field(default_factory=lambda: [1, 5], metadata={"nargs": "+"})
    lr: list[float] = field(default_factory=list, metadata={"nargs": "+"})
    neighbors: list[int] = field(default_factory=lambda: [50, 100, 400], metadata={"nargs": "+"})
    windows: list[int] = field(default_factory=lambda: list(WINDOWS), metadata={"nargs": "+"})
    entries: int = 20_000
    naive_tokens: int = 2
    exact_tokens: int = 10
    error_tokens: int = 100
    heads: list[str] = field(default_factory=lambda: list(HEADS), metadata={"nargs": "*"})
    network_hidden: int = 1000
    network_entries: int = 1000
    network_neighbors: int = 50
    network_steps: list[int] = field(default_factory=lambda: [1, 5], metadata={"nargs": "+"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, count in (("naive_tokens", self.naive_tokens), ("exact_tokens", self.exact_tokens)):
            if count > self.batch:
                raise UserError(f"{name} = {count} exceeds batch = {self.batch}")
        for name in self.heads:
            if name not in HEADS:
                raise unknown("head", name, HEADS, f"choose {', '.join(HEADS)}")
        if self.lr and len(self.lr) != len(self.steps):
            raise UserError(f"lr has {len(self.lr)} values for {len(self.steps)} numbers of steps; give one each")
        if len(self.windows) != len(self.vocabulary):
            raise UserError(
                f"windows has {len(self.windows)} values for {len(self.vocabulary)} vocabularies; give one each"
            )

    def rates(self) -> list[float]:
        """Return the learning rate for each number of steps."""
        return self.lr or [MbpaConfig().lr] * len(self.steps)


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

    def least(self) -> Mapping[str, int]:
        """Return the least value of the numbers that must be larger than 1, by option."""
        return {"entries": self.k}


@dataclass(frozen=True)
class EvalBenchConfig(StatesConfig):
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
        if self.arch not in ARCHITECTURES:
            raise unknown("arch", self.arch, ARCHITECTURES, f"choose from {', '.join(ARCHITECTURES)}")
        for name in self.names():
            if name.startswith(DYNAMIC):
                raise UserError(f"method {name!r} moves a base of its own; it is measured beside the others anyway")

    def least(self) -> Mapping[str, int]:
        """Return the least value of the numbers that must be larger than 1, by option."""
        return {"stream_tokens": 2 * self.batch, "streams": 2}

    def names(self) -> list[str]:
        """Return the methods by name."""
        return named(self.methods)

    def longest(self) -> int:
        """Return the tokens of the longest stream."""
        return max(self.tokens, self.currency_tokens, self.stream_tokens)


@dataclass(frozen=True)
class TrainBenchConfig(BenchConfig):
    """Speed and memory of training.

    Args:
        preset: tiny, small, medium, paper.
        vocabulary: classes V; the ids are drawn by Zipf's law, as time does not depend on what they say.
        segments: optimiser steps in a round.
    """

    preset: list[str] = field(default_factory=lambda: ["tiny", "small"], metadata={"nargs": "+"})
    vocabulary: list[int] = field(default_factory=lambda: [10_000, 33_278], metadata={"nargs": "+"})
    segments: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.preset:
            check_preset(name)
