"""Small bases, streams and contexts for the tests of adapters and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from awd_lstm import AWDLSTM, AWDLSTMConfig
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.best import BestConfig
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.combine import MixtureHebbConfig, MixtureMbpaConfig
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.knn import KnnConfig
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.mixture import MixtureConfig
from hebblm.adapt.methods.ngram import Ngram, NgramConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.observers import Observer
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, VocabularyPolicy
from hebblm.memory import AnyMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.models.awd import AwdBase
from hebblm.models.base import Base, BaseUpdate
from hebblm.text import Corpus, EvaluationStream, PreparedCorpus, prepare
from hebblm.text.tokenizers import WhitespaceTokenizer

from .lines import MemoryLines

DIM = 8
SOURCE = 24  # words of the base
NOVEL = 6  # words it does not know
WORDS = SOURCE + NOVEL
EOS = 1
UNK = 0

SETTINGS = MethodSettings(
    CacheConfig(window=30, theta=0.7, gamma=0.2),
    KnnConfig(temperature=0.5, gamma=0.3),
    MixtureConfig(theta=0.8, gamma=0.25),
    MbpaConfig(optimizer="sgd", lr=0.3, steps=3, l2_to_base=0.0, weight=1.0),
    HebbConfig(beta=0.6, eta=0.4, kernel_weight="raw"),
    MixtureMbpaConfig(0.35),
    MixtureHebbConfig(0.45),
    BestConfig(short=5, medium=15, long=30, lr=0.0),
    NgramConfig(fresh="interval", lr=0.0),
)
LEARNED = SETTINGS.replaced(
    CacheConfig(window=30),
    KnnConfig(),
    MixtureConfig(),
    MixtureMbpaConfig(),
    MixtureHebbConfig(),
    BestConfig(short=5, medium=15, long=30, lr=0.1),
    NgramConfig(fresh="interval"),
)
"""The same with every share learned online."""

MemoryMaker = Callable[[torch.dtype], AnyMemory]
MEMORIES: dict[str, MemoryMaker] = {
    "flat": lambda dtype: FlatMemory(DIM, dtype=dtype),
    "ring": lambda dtype: RingMemory(DIM, 13, dtype=dtype),
    "hybrid": lambda dtype: HybridMemory(
        FlatMemory(DIM, dtype=dtype), FlatMemory(DIM, dtype=dtype), flush_at=11
    ),
}
every_memory = pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())


def tiny_model(seed: int = 0, vocabulary: int = SOURCE, **dropout: float) -> AWDLSTM:
    """Return an untrained model whose states and logits are large enough for methods to differ."""
    torch.manual_seed(seed)
    model = AWDLSTM(AWDLSTMConfig(vocabulary, DIM, 12, 2, **dropout)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    return model


def tokens(seed: int, count: int, words: int = WORDS) -> np.ndarray:
    """Return ids in which some words are frequent."""
    generator = np.random.default_rng(seed)
    return np.minimum(generator.geometric(0.15, count) - 1, words - 1).astype(np.int64)[:count]


def by_first_appearance(ids: np.ndarray, source: int = SOURCE) -> np.ndarray:
    """Renumber novel words in the order in which they appear."""
    order = {}
    for token in ids:
        if token >= source:
            order.setdefault(int(token), source + len(order))
    return np.array([order.get(int(token), int(token)) for token in ids], dtype=np.int64)


def stream_of(ids: np.ndarray, *, words: int = WORDS, source: int = SOURCE) -> EvaluationStream:
    """Return a stream over ``ids`` with training counts that cover every frequency bucket."""
    counts = np.zeros(words, dtype=np.int64)
    counts[:source] = np.geomspace(2000, 3, source).astype(np.int64)
    lines = int((ids == EOS).sum())
    return EvaluationStream(
        ids=ids,
        eos=EOS,
        source_size=source,
        vocabulary_size=words,
        symbols=tuple(f"w{i}" for i in range(words)),
        train_counts=counts,
        lines=lines,
        words=len(ids) - lines,
        bytes=5 * len(ids),
    )


def base_of(model: AWDLSTM, *, rows: int = NOVEL, lr: float = 0.0) -> AwdBase:
    return AwdBase(model, rows=rows, init="uniform", update=BaseUpdate(lr=lr))


def context_of(
    base: AwdBase,
    memory: AnyMemory,
    stream: EvaluationStream,
    *,
    k: int = 9,
    window: int = 30,
    novel: bool = True,
) -> Context:
    """Return the shared state of all methods over ``base``."""
    rows = base.head.weight.shape[0]
    new = torch.arange(rows) >= stream.source_size if novel else None
    counts = torch.from_numpy(stream.train_counts[:rows].copy())
    return counting(
        Context(base.head, memory, k=k, train_counts=counts, new_classes=new, window=window)
    )


def counting(context: Context) -> Context:
    """The same context, which counts n-grams."""
    context.learn_mixture_weights([Ngram(SETTINGS[NgramConfig])])
    return context


def exact(settings: MethodSettings) -> MethodSettings:
    """Return the settings with MbPA's exact form."""
    return settings.replaced(replace(settings[MbpaConfig], solver="exact"))


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return repeatable normal numbers."""
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return all that is in a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def text(seed: int, lines: int, words: int = 30) -> list[str]:
    generator = np.random.default_rng(seed)
    return [
        " ".join(
            f"w{min(i, words) - 1}" for i in generator.geometric(0.15, generator.integers(3, 9))
        )
        for _ in range(lines)
    ]


def corpus(
    folder: Path, *, seed: int = 0, lines: int = 60, words: int = 30, name: str = "toy"
) -> PreparedCorpus:
    """Prepare a made-up corpus in ``folder``."""
    sources = {
        split: MemoryLines(text(seed + index, lines, words))
        for index, split in enumerate(("train", "valid", "test"))
    }
    made = Corpus(name, sources, WhitespaceTokenizer(), {"kind": "made up"})
    return prepare(made, normalization="raw", destdir=folder)


def open_distribution(vocabulary: OpenVocabulary, log_probs: Tensor) -> Tensor:
    """Return log-probabilities (N, V) of everything that can occur from those of the rows (N,
    rows).
    """
    unseen = vocabulary.size - log_probs.shape[1]
    if unseen == 0:
        return log_probs
    each = log_probs[:, vocabulary.unk, None] + math.log(vocabulary.share / unseen)  # (N, 1)
    full = torch.cat([log_probs, each.expand(-1, unseen)], 1)
    full[:, vocabulary.unk] += math.log1p(-vocabulary.share)
    return full


def alone(
    base: Base, stream: EvaluationStream, vocabulary: VocabularyPolicy, *, segment: int
) -> np.ndarray:
    """Return the losses (T,) of a base that learns from a stream, by itself: the slow reference of
    the loop.
    """
    nll = []
    for start in range(0, len(stream), segment):
        stop = min(start + segment, len(stream))
        inputs, labels = (
            torch.from_numpy(ids[start:stop]) for ids in (stream.inputs, stream.targets)
        )
        rows = base.head.weight.shape[0]
        hidden = base.read(vocabulary.readable(inputs, rows))
        with torch.no_grad():
            found = base.head.logits(hidden).log_softmax(1)
            scored = -found.gather(1, vocabulary.readable(labels, rows)[:, None])[:, 0]
            if isinstance(vocabulary, OpenVocabulary):
                scored = vocabulary.charged(scored, labels, rows)
        nll += scored.float().tolist()
        base.learn(vocabulary.readable(labels, rows))
        if new := vocabulary.new_rows(labels, rows):
            base.grow(new)
    return np.array(nll, dtype=np.float32)


def observe(context: Context, hidden: Tensor, targets: Tensor, *, write: bool = True) -> None:
    """Let a context take scored pairs (N, D), (N,) that were predicted alone."""
    observation = EvalBatch(hidden, context).observation(targets)
    context.observe(observation, write=write)
    context.count_ngrams(observation)


def losses_of(
    rules: Mapping[str, Predictor], stream: EvaluationStream, *observers: Observer
) -> dict[str, np.ndarray]:
    """Return the losses (T,) of some rules, in double precision, updated every 20 tokens."""
    base = base_of(tiny_model().double())
    context = context_of(base, FlatMemory(DIM, dtype=torch.float64), stream)
    found = evaluate(
        base, [context], rules, stream, UnionVocabulary(), Schedule(20), Hooks(observers)
    )
    return {name: nll.astype(float) for name, nll in found.nll.items()}
