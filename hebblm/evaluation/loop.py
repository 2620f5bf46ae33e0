"""Predict, score, update: the one order of evaluation. No method ever sees a label before it is scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt import Context, EvalBatch, Rule
from hebblm.adapt.block import Block
from hebblm.adapt.safeguards import Safeguards
from hebblm.evaluation.blocks import Pace
from hebblm.evaluation.sweep import Sweep
from hebblm.evaluation.vocabulary import UnionVocabulary, Vocabulary
from hebblm.models.base import Base
from hebblm.text import EvaluationStream

Progress = Callable[[int], None]


@dataclass(slots=True)
class Scores:
    """What a pass over the stream found.

    Args:
        nll: by method, (T,) float32 losses in nats.
        seconds: by method, time it would take alone: base, retrieval if it uses it, and its own work.
        stabilized: by method, queries whose adaptation diverged and was run at a stable rate.
        widened: by method, queries whose fast form followed more classes, to keep to the tolerance.
        exact_fallbacks: by method, queries whose fast form gave way to the exact one.
        base_seconds: reading and learning of the base.
        retrieval_seconds: search and update of the memory.
    """

    nll: dict[str, npt.NDArray[np.float32]]
    seconds: dict[str, float] = field(default_factory=dict)
    stabilized: dict[str, int] = field(default_factory=dict)
    widened: dict[str, int] = field(default_factory=dict)
    exact_fallbacks: dict[str, int] = field(default_factory=dict)
    base_seconds: float = 0.0
    retrieval_seconds: float = 0.0

    def count(self, name: str, needed: Safeguards) -> None:
        """Add the queries of a mini-batch that a method ran in another form."""
        for counts, queries in (
            (self.stabilized, needed.stabilized),
            (self.widened, needed.widened),
            (self.exact_fallbacks, needed.exact_fallbacks),
        ):
            counts[name] = counts.get(name, 0) + int(queries.sum())


@torch.no_grad()
def evaluate(
    base: Base,
    context: Context,
    rules: Mapping[str, Rule],
    stream: EvaluationStream,
    vocabulary: Vocabulary,
    *,
    update_every: int,
    write: bool = True,
    read_ahead: bool = False,
    retrieve: bool = True,
    sweep: Sweep | None = None,
    progress: Progress = lambda tokens: None,
) -> Scores:
    """Score every token of a stream by every method, with one forward pass and one retrieval for all.

    The loop is equivalent to, for each interval of ``update_every`` tokens::

        hidden = base.read(inputs)          # what the model knows before each label
        for rule in rules: score(rule, hidden, labels)
        base.learn(labels)
        context.observe(hidden, labels)     # memory, counts, window

    A fixed base's states do not depend on when labels are observed. So intervals shorter than a block are predicted
    together, each token from what was observed before its own interval alone: what was stored before the block by
    retrieval, and earlier rows of the block under a mask (:mod:`hebblm.memory.causal`). A memory that has no such
    search, and a base that learns or grows, take one interval at a time.

    Args:
        base: reads the stream; may learn after scoring, for every method alike.
        context: its head must be the base's.
        rules: by name.
        stream: the tokens.
        vocabulary: how unseen words are charged.
        update_every: tokens between two updates of memory and base.
        write: add observed pairs to the memory; False evaluates with what it holds.
        read_ahead: read and predict more than one interval at a time; only for a fixed base of fixed vocabulary.
        retrieve: whether any rule needs neighbours; False spares the search.
        sweep: states and neighbours of this very stream, base and memory, where they were computed before; the base is
            then not read, nor the memory searched.
        progress: called with the number of tokens done since the last call.

    Returns:
        Losses of all tokens, in order, nats.
    """
    device = context.head.weight.device
    inputs = torch.from_numpy(stream.inputs).to(device)
    targets = torch.from_numpy(stream.targets).to(device)
    total = len(stream)
    pace = Pace.of(update_every, ahead=read_ahead)
    scores = Scores({name: np.empty(total, dtype=np.float32) for name in rules})
    own = dict.fromkeys(rules, 0.0)
    for begin in range(0, total, pace.ahead):
        started = time.perf_counter()
        end = min(begin + pace.ahead, total)
        if sweep is None:
            states = base.read(vocabulary.readable(inputs[begin:end], context.head.weight.shape[0]))
        else:
            states = sweep.states(begin, end)
        scores.base_seconds += time.perf_counter() - started
        for start, stop in pace.blocks(begin, end, context.memory if write and retrieve else None):
            hidden, labels = states[start - begin : stop - begin], targets[start:stop]  # (N, D), (N,)
            ranked = None if sweep is None else sweep.ranked(start, stop)
            batch = context.batch(hidden, Block.of(labels, update_every, write), ranked)
            started = time.perf_counter()
            _ = batch.log_normalizers
            scores.base_seconds += (now := time.perf_counter()) - started
            if retrieve:
                _ = batch.neighbors
                scores.retrieval_seconds += time.perf_counter() - now
            for name, rule in rules.items():
                started = time.perf_counter()
                scores.nll[name][start:stop] = (
                    token_losses(rule, batch, labels, vocabulary).float().cpu().numpy()
                )
                scores.count(name, rule.safeguards(batch))
                own[name] += time.perf_counter() - started
            started = time.perf_counter()
            _advance(base, labels, vocabulary)
            context.set_head(base.head)
            scores.base_seconds += (now := time.perf_counter()) - started
            context.observe(hidden, labels, write=write)
            scores.retrieval_seconds += time.perf_counter() - now
            progress(stop - start)
    scores.seconds = _standalone(own, scores)
    return scores


def token_losses(rule: Rule, batch: EvalBatch, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Return the loss (N,) in nats of ``labels``; only the open vocabulary needs the whole distribution."""
    if isinstance(vocabulary, UnionVocabulary):
        return rule.score(batch, labels)
    return vocabulary.score(rule.log_probs(batch), labels)


PARTS: dict[str, tuple[str, ...]] = {
    "hebb": ("mbpa",),
    "mixture+mbpa": ("mixture", "mbpa"),
    "mixture+hebb": ("mixture", "mbpa", "hebb"),
    "mixture+cache": ("mixture",),
    "dynamic+mixture+hebb": ("dynamic+mixture",),
    "dynamic+mixture+cache": ("dynamic+mixture",),
    "hebb-v2": ("mbpa",),
    "hebb-v3": ("mbpa",),
    "hebb-literal": ("mbpa",),
}
"""Methods whose work a method takes over from an earlier one in the same run."""
WITHOUT_RETRIEVAL = ("lstm", "cache", "dynamic")


def _standalone(own: Mapping[str, float], scores: Scores) -> dict[str, float]:
    """Return the time of each method had it run alone."""
    seconds: dict[str, float] = {}
    order = list(own)
    for name, mine in own.items():
        earlier = [p for p in PARTS.get(name, ()) if p in own and order.index(p) < order.index(name)]
        search = 0.0 if name in WITHOUT_RETRIEVAL else scores.retrieval_seconds
        seconds[name] = scores.base_seconds + search + mine + sum(own[p] for p in earlier)
    return seconds


def evaluate_alone(
    base: Base,
    stream: EvaluationStream,
    vocabulary: Vocabulary,
    *,
    segment: int,
    progress: Progress = lambda tokens: None,
) -> tuple[npt.NDArray[np.float32], float]:
    """Score a stream by a base that learns from it and uses no memory (dynamic evaluation).

    Args:
        base: a :class:`hebblm.models.base.Base`.
        stream: the tokens.
        vocabulary: how unseen words are charged.
        segment: tokens read, scored and then learned from at a time.
        progress: called with the number of tokens done since the last call.

    Returns:
        (T,) float32 losses in nats, and the seconds it took.
    """
    device = base.head.weight.device
    inputs = torch.from_numpy(stream.inputs).to(device)
    targets = torch.from_numpy(stream.targets).to(device)
    nll = np.empty(len(stream), dtype=np.float32)
    started = time.perf_counter()
    for start in range(0, len(stream), segment):
        stop = min(start + segment, len(stream))
        labels = targets[start:stop]
        hidden = base.read(vocabulary.readable(inputs[start:stop], base.head.weight.shape[0]))
        with torch.no_grad():
            nll[start:stop] = vocabulary.score(base.head.logits(hidden).log_softmax(1), labels).cpu().numpy()
        _advance(base, labels, vocabulary)
        progress(stop - start)
    return nll, time.perf_counter() - started


def _advance(base: Base, labels: Tensor, vocabulary: Vocabulary) -> None:
    """Let the base learn from scored labels, and give words seen for the first time their rows."""
    rows = base.head.weight.shape[0]
    with torch.enable_grad():
        base.learn(vocabulary.readable(labels, rows))
    if new := vocabulary.new_rows(labels, rows):
        base.grow(new)
