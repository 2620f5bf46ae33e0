"""Options of the measurements."""
# ruff: noqa: RUF009 - each call below makes a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from awd_lstm import ARCHITECTURES
from hebblm.adapt.methods import DYNAMIC, PUBLISHED
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.errors import UserError
from hebblm.models.presets import check_preset
from hebblm.runtime.spelling import unknown
from recipes.bench.timing import MINIMUM_REPEATS

HEADS = {"gpt2": (50_257, 768), "llama-3-8b": (128_256, 4096), "gemma-2-9b": (256_000, 3584)}
"""Classes V and width D of the softmax layers of well-known models."""
WINDOWS = {10_000: 500, 33_278: 3785}
"""Windows of the cache that were published for the vocabularies of Penn Treebank and WikiText-2."""
FEW, SOME, MANY = 2, 10, 100
"""Queries in a round of the plain form, in one of the exact form, and those on which the fast
form's error is taken.
"""
METHODS = tuple(name for name in PUBLISHED if name != DYNAMIC)


def _several(*values: int) -> Any:
    """Return an option that takes several numbers, with its default."""
    return field(default_factory=lambda: list(values), metadata={"nargs": "+"})


@dataclass(frozen=True)
class BenchConfig:
    """Options of every measurement.

    Args:
        json: file for the result, with every raw time; it grows with each finished case.
        threads: of torch and FAISS; by default as many as torch takes.
        repeats: rounds that count, at least 5.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
        seed: of the synthetic source, and of weights.
    """

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
        k: neighbours a query, K.
        batch: queries of a mini-batch.
    """

    k: int = 200
    batch: int = 100


@dataclass(frozen=True)
class AdaptConfig(StatesConfig):
    """Cost and error of adaptation.

    Args:
        checkpoint: a trained model, or one that ships, whose states are measured in addition to the
            synthetic ones.
        dim: width of the synthetic states, D.
        vocabulary: classes of the synthetic heads, V.
        steps: gradient steps S.
        neighbors: further K whose cost is measured.
        entries: of the memory that is searched.
        heads: large softmax layers with random weights, by name; 16 GB of memory are enough for
            all.
    """

    checkpoint: Path | None = None
    dim: int = 400
    vocabulary: list[int] = _several(10_000, 33_278)
    steps: list[int] = _several(1, 5)
    neighbors: list[int] = _several(50, 100, 400)
    entries: int = 20_000
    heads: list[str] = field(default_factory=lambda: list(HEADS), metadata={"nargs": "*"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.heads:
            if name not in HEADS:
                raise unknown("head", name, HEADS, f"choose {', '.join(HEADS)}")

    def descent(self, steps: int) -> dict[str, Any]:
        """Return MbPA's keyword arguments for so many steps, at its default rate."""
        return {"lr": MbpaConfig().lr, "steps": steps, "eps": 1e-3}


@dataclass(frozen=True)
class RetrieveConfig(StatesConfig):
    """Cost and recall of retrieval.

    Args:
        checkpoint: a trained model, or one that ships, whose states are measured in addition to the
            synthetic ones.
        dim: width of the synthetic states, D.
        entries: sizes of the memory; both forms keep their own copy of the keys, at most 3.2 kB an
            entry at D = 400.
        index: exact, auto, or a FAISS factory string.
        recall_queries: queries on which recall is measured.
    """

    checkpoint: Path | None = None
    dim: int = 400
    entries: list[int] = _several(10_000, 100_000, 1_000_000)
    index: str = "auto"
    recall_queries: int = 500

    def least(self) -> Mapping[str, int]:
        """Return the least value of the numbers that must be larger than 1, by option."""
        return {"entries": self.k}


@dataclass(frozen=True)
class EvalBenchConfig(StatesConfig):
    """Cost of a whole evaluation.

    Args:
        arch: architecture that reads, with untrained weights.
        vocabulary: classes V of the synthetic head.
        memory_sizes: entries that the memory holds before the stream.
        tokens: of the stream, for the cost by memory size.
        currency_tokens: of the stream on which an update at every token is compared with one a
            mini-batch.
        stream_tokens: of the stream over which the cost a token is followed.
        streams: in how many parallel streams the same tokens are read, in addition to one.
    """

    arch: str = "awd_lstm_ptb"
    vocabulary: int = 10_000
    memory_sizes: list[int] = _several(10_000, 100_000)
    tokens: int = 1000
    currency_tokens: int = 500
    stream_tokens: int = 10_000
    streams: list[int] = _several(8, 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arch not in ARCHITECTURES:
            raise unknown(
                "arch", self.arch, ARCHITECTURES, f"choose from {', '.join(ARCHITECTURES)}"
            )

    def least(self) -> Mapping[str, int]:
        """Return the least value of the numbers that must be larger than 1, by option."""
        return {"stream_tokens": 2 * self.batch, "streams": 2}


@dataclass(frozen=True)
class TrainBenchConfig(BenchConfig):
    """Speed and memory of training.

    Args:
        preset: tiny, small, medium, paper.
        vocabulary: classes V; the ids are drawn by Zipf's law, as time does not depend on what they
            say.
        segments: optimiser steps in a round.
    """

    preset: list[str] = field(default_factory=lambda: ["tiny", "small"], metadata={"nargs": "+"})
    vocabulary: list[int] = _several(10_000, 33_278)
    segments: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.preset:
            check_preset(name)


@dataclass(frozen=True)
class RealConfig(BenchConfig):
    """Cost of reading with a real model.

    Args:
        model: a causal language model of transformers, as --model of hebblm-eval takes it.
        text: file that is read.
        tokens: pieces of it.
        contexts: windows, in tokens.
        dtype: type of the weights, as --dtype of hebblm-eval takes it.
    """

    model: str = "smollm2-135m"
    text: Path = Path("docs/methods.md")
    tokens: int = 4000
    contexts: list[int] = _several(1024, 4096)
    dtype: str = "auto"


@dataclass(frozen=True)
class ServeBenchConfig(BenchConfig):
    """Cost of the server.

    Args:
        models: as hebblm serve takes them; one of llama.cpp's form is served by llama.cpp as well.
        text: file that the memory learns first.
        typed: file that is typed, letter by letter.
        context: tokens before the first letter, at most.
        letters: that are typed.
        tokens: of a completion.
        llama_python: Python of an environment with xllamacpp, which has llama.cpp's server.
    """

    models: list[str] = field(
        default_factory=lambda: ["small-wt2-raw", "tiny-pydoc-raw", "smollm2-135m"],
        metadata={"nargs": "+"},
    )
    text: Path = Path("docs/methods.md")
    typed: Path = Path("docs/predict.md")
    context: int = 500
    letters: int = 60
    tokens: int = 16
    llama_python: Path | None = None

    def least(self) -> Mapping[str, int]:
        """Return the least letters: a percentile needs two values."""
        return {"letters": 2}
