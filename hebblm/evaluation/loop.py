"""Evaluation loop: predict, score, update. No method sees a label before it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hebblm.adapt.context import Context
from hebblm.adapt.methods.mbpa import Safeguards
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.work import clock_of
from hebblm.evaluation.checkpoint import PassCheckpoint
from hebblm.evaluation.observers import Observer
from hebblm.evaluation.scores import EvaluationScores, Timing
from hebblm.memory.ngram_rows import contexts_of
from hebblm.models.base import Base
from hebblm.online.layout import Layout, Pace
from hebblm.online.ranks import MemoryRanks
from hebblm.online.session import Losses, OnlineSession, Unit
from hebblm.online.text import PrecomputedStates as PrecomputedStates
from hebblm.online.text import TextSource, TextStreams
from hebblm.online.vocabulary import VocabularyPolicy
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text import EvaluationStream

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Order in which a text is read, predicted and learned from.

    Args:
        update_every: tokens of a stream between two updates of memory and base.
        layout: the streams that the text is cut into, as many as the base reads; None for a single
            one.
        write: whether to add observed pairs to the memory; False evaluates with its present
            entries. Only rules that retrieve search it.
        read_ahead: whether to read and predict several intervals at a time; only for a fixed base
            and vocabulary.
        precomputed: states and neighbours of this stream, base and memory; then the base does not
            read, and the memory is not searched.
        ranks: processes that share the streams; if they share a memory, it is a
            :class:`~hebblm.memory.ShardedMemory`.
    """

    update_every: int
    layout: Layout | None = None
    write: bool = True
    read_ahead: bool = False
    precomputed: PrecomputedStates | None = None
    ranks: Ranks = ALONE


@dataclass(frozen=True, slots=True)
class Hooks:
    """Observers of a reading; no loss depends on them.

    Args:
        observers: see every mini-batch after it is scored, before it is learned from.
        check: whether to count the queries whose neighbours' loss rose, and compare MbPA's fast
            form with the exact one on one query in a thousand.
        ask: called with begin and end of the tokens that the base is about to read, before any of
            them is scored, when all before them are learned from; nothing is read ahead then.
        progress: called with the number of tokens done since the last call.
        checkpoint: the pass's place on disk, from which it goes on. None for a pass that always
            starts from the beginning.
    """

    observers: Sequence[Observer] = ()
    check: bool = False
    ask: Callable[[int, int], None] | None = None
    progress: Progress = lambda tokens: None
    checkpoint: PassCheckpoint | None = None


@torch.no_grad()
def evaluate(
    base: Base,
    contexts: Sequence[Context],
    predictors: Mapping[str, Predictor],
    stream: EvaluationStream,
    vocabulary: VocabularyPolicy,
    schedule: Schedule,
    hooks: Hooks | None = None,
) -> EvaluationScores:
    """Score every token of a stream by every method, with one forward pass and one retrieval for
    all.

    Each interval of ``update_every`` tokens is one ``interval`` of an
    :class:`~hebblm.online.session.OnlineSession`, which is equivalent to::

        batch = EvalBatch(base.read(inputs), context)    # what the model knows before each label
        for rule in rules: rule.score(batch, labels)
        observation = batch.observation(labels)          # of the predictions as they were
        base.learn(labels)
        context.set_head(base.head)
        context.take(observation)                        # memory, counts, window, mixture weights

    A fixed base's states do not depend on when labels are observed. So intervals shorter than a
    block are predicted together, each token only from observations before its own interval: the
    entries stored before the block by retrieval, and earlier rows of the block under a mask
    (:mod:`hebblm.memory.causal`). A memory that has no such search, and a base that learns or
    grows, take one interval at a time.

    With several streams at once, the intervals of all are scored before any of them is observed.

    Args:
        base: reads the stream; may learn after scoring, for every method alike.
        contexts: their head must be the base's; one for each stream if they share no memory, else a
            single one.
        predictors: rules by name.
        stream: the tokens.
        vocabulary: policy for the losses of unseen words.
        schedule: order of reading, predicting and learning.
        hooks: observers; None for no observers.

    Returns:
        Losses of all tokens, in order, nats.
    """
    if hooks is None:
        hooks = Hooks()
    ranks = schedule.ranks
    checkpoint = hooks.checkpoint
    layout = (schedule.layout or Layout.of(len(stream))).part(ranks.rank, ranks.size)
    scores = EvaluationScores(
        {name: np.empty(len(stream), dtype=np.float32) for name in predictors}
    )
    device = contexts[0].head.weight.device
    session = OnlineSession(
        TextSource(base, vocabulary),
        contexts,
        predictors,
        ranks=MemoryRanks(ranks if layout.spread else ALONE),
        profiler=Timing(scores, clock_of(device)),
    )
    inputs, labels = (torch.from_numpy(ids).to(device) for ids in (stream.inputs, stream.targets))
    text = TextStreams(
        layout, inputs, labels, schedule.update_every, schedule.write, schedule.precomputed
    )
    counting = [
        name for name, predictor in predictors.items() if predictor.requirements.ngrams is not None
    ]
    pace = _pace(schedule, layout, hooks, counts=bool(counting))
    memories = [context.memory for context in contexts] if schedule.write else []
    record = _recorder(predictors, scores, hooks)
    first = 0  # place from which on tokens are scored
    read_from = 0  # place from which on the base reads
    if checkpoint is not None:
        first, read_from = checkpoint.begin(session, scores, layout, ranks)
    if first:
        _count_ngrams(contexts, text, first)
        hooks.progress(layout.tokens(0, first))
    for begin in range(read_from, layout.longest, pace.ahead):
        end = min(begin + pace.ahead, layout.longest)
        if hooks.ask is not None:
            hooks.ask(begin, end)
        if checkpoint is not None and pace.ahead > pace.block:
            checkpoint.keep_base(begin)
        with session.profiler.part("base"):
            states = text.read(session.source, begin, end)  # (B, n, D)
        for start, stop in pace.blocks(max(begin, first), end, memories):
            units = text.units(contexts, states, begin, start, stop)
            observed = session.interval(units, record, write=schedule.write)
            if checkpoint is not None:
                checkpoint.observe_ranks(observed, written=schedule.write)
            hooks.progress(layout.tokens(start, stop))
            # Several ranks save together, and their blocks may differ.
            if checkpoint is not None and (stop == end or ranks.size == 1):
                checkpoint.reach(stop, read=end)
    scores.charge_shared_work(counting)
    return scores.of_all(ranks, layout)


def _pace(schedule: Schedule, layout: Layout, hooks: Hooks, *, counts: bool) -> Pace:
    """Return how many tokens are read and predicted together."""
    # Within a block n-grams see only rows of their own stream; rows of other streams count from the
    # next block on.
    one_by_one = layout.spread or (counts and layout.together > 1)
    ahead = schedule.read_ahead and hooks.ask is None
    return Pace.of(schedule.update_every, ahead=ahead, streams=layout.together, spread=one_by_one)


def _recorder(
    predictors: Mapping[str, Predictor], scores: EvaluationScores, hooks: Hooks
) -> Callable[[Unit, Losses], None]:
    """Return a function that records a unit's losses, and shows the unit to the observers."""

    def record(unit: Unit, losses: Losses) -> None:
        for name, nll in losses.items():
            scores.nll[name][unit.places] = nll.float().cpu().numpy()
            if hooks.check:
                scores.count(name, Safeguards.of(predictors[name], unit.batch))
        for observer in hooks.observers:
            observer.watch(unit.batch, unit.labels)

    return record


def _count_ngrams(contexts: Sequence[Context], text: TextStreams, first: int) -> None:
    """Count the n-grams of the tokens before a place of all streams again, in the original
    order.
    """
    layout = text.layout
    for number, context in enumerate(contexts):
        if (ngrams := context.ngrams) is None:
            continue
        if layout.scope == "shared":
            streams = list(range(len(layout.begins)))
        else:
            streams = [layout.own_streams[number]]
        runs = [(layout.begins[stream], min(first, layout.lengths[stream])) for stream in streams]
        texts = [text.labels[begin : begin + length].cpu().numpy() for begin, length in runs]
        before = np.concatenate([contexts_of(ids, 0, ngrams.order) for ids in texts])
        # An interval of all streams comes before the next one; that matters when the counts reach
        # their capacity.
        interval = np.concatenate([np.arange(length) // text.update_every for _, length in runs])
        order = np.argsort(interval, kind="stable")
        ngrams.add(before[order], np.concatenate(texts)[order])
