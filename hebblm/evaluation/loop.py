"""Evaluation loop: predict, score, update. No method sees a label before it is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.contract import FirstBatches
from hebblm.adapt.methods.mbpa import Safeguards
from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.work import Work, clock_of
from hebblm.evaluation.checkpoint import PassCheckpoint
from hebblm.evaluation.observers import Observer
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.vocabulary import VocabularyPolicy
from hebblm.memory.nearest import Ranked
from hebblm.memory.ngram_rows import contexts_of
from hebblm.models.base import Base
from hebblm.online.layout import Layout, Pace
from hebblm.online.session import Labelled, Observed, step
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text import EvaluationStream

Progress = Callable[[int], None]


class PrecomputedStates(Protocol):
    """States and neighbours of a stream that were computed before."""

    def states(self, begin: int, end: int) -> Tensor:
        """Return hidden states (n, D) of a run of tokens."""

    def ranked(self, begin: int, end: int) -> Ranked:
        """Return distances and positions (n, K) of the neighbours of a run of tokens."""


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
    rules: Mapping[str, Rule],
    stream: EvaluationStream,
    vocabulary: VocabularyPolicy,
    schedule: Schedule,
    hooks: Hooks | None = None,
) -> EvaluationScores:
    """Score every token of a stream by every method, with one forward pass and one retrieval for
    all.

    The loop is equivalent to, for each interval of ``update_every`` tokens::

        batch = EvalBatch(base.read(inputs), context)    # what the model knows before each label
        for rule in rules: rule.score(batch, labels)
        observation = batch.observation(labels)          # of the predictions as they were
        base.learn(labels)
        context.set_head(base.head)
        context.take(observation)                        # memory, counts, window, shares

    A fixed base's states do not depend on when labels are observed. So intervals shorter than a
    block are predicted together, each token only from observations before its own interval: the
    entries stored before the block by retrieval, and earlier rows of the block under a mask
    (:mod:`hebblm.memory.causal`). A memory that has no such search, and a base that learns or
    grows, take one interval at a time.

    With several streams side by side, the intervals of all are scored before any of them is
    observed.

    Args:
        base: reads the stream; may learn after scoring, for every method alike.
        contexts: their head must be the base's; one for each stream if they share no memory, else a
            single one.
        rules: rules by name.
        stream: the tokens.
        vocabulary: policy for the losses of unseen words.
        schedule: order of reading, predicting and learning.
        hooks: observers; None for no observers.

    Returns:
        Losses of all tokens, in order, nats.
    """
    hooks, ranks = hooks or Hooks(), schedule.ranks
    layout = (schedule.layout or Layout.of(len(stream))).part(ranks.rank, ranks.size)
    counting = [name for name, rule in rules.items() if rule.needs.ngrams is not None]
    # Within a block n-grams see only rows of their own stream; rows of other streams count from the
    # next block on.
    one_by_one = layout.spread or (bool(counting) and layout.together > 1)
    ahead = schedule.read_ahead and hooks.ask is None
    pace = Pace.of(schedule.update_every, ahead=ahead, streams=layout.together, spread=one_by_one)
    memories = [context.memory for context in contexts] if schedule.write else []
    for context in contexts:
        context.learn_shares(rules.values())
    scores = EvaluationScores({name: np.empty(len(stream), dtype=np.float32) for name in rules})
    run = _Pass(base, contexts, rules, stream, vocabulary, layout, schedule, hooks, scores)
    first = (
        0 if hooks.checkpoint is None else hooks.checkpoint.begin(contexts, scores, layout, ranks)
    )
    if first:
        run.count_ngrams(first)
        hooks.progress(layout.tokens(0, first))
    for begin in range(first, layout.longest, pace.ahead):
        end = min(begin + pace.ahead, layout.longest)
        if hooks.ask is not None:
            hooks.ask(begin, end)
        states = run.read(begin, end)  # (B, n, D)
        for start, stop in pace.blocks(begin, end, memories):
            batches = run.predict(states, begin, start, stop)
            observed = step(batches, run.score, run.learn, observe=run.observe, take=run.take)
            if hooks.checkpoint is not None:
                hooks.checkpoint.note(observed, written=schedule.write)
            hooks.progress(layout.tokens(start, stop))
        if hooks.checkpoint is not None:
            hooks.checkpoint.reach(end)
    scores.settle(counting)
    return scores.of_all(ranks, layout)


class _Pass:
    """Parts of the loop, with the arguments of :func:`evaluate`; ``scores`` record their time."""

    def __init__(
        self,
        base: Base,
        contexts: Sequence[Context],
        rules: Mapping[str, Rule],
        stream: EvaluationStream,
        vocabulary: VocabularyPolicy,
        layout: Layout,
        schedule: Schedule,
        hooks: Hooks,
        scores: EvaluationScores,
    ) -> None:
        device = contexts[0].head.weight.device
        self.base, self.contexts, self.rules, self.vocabulary = base, contexts, rules, vocabulary
        self.layout, self.schedule, self.hooks, self.scores = layout, schedule, hooks, scores
        self.inputs = torch.from_numpy(stream.inputs).to(device)
        self.targets = torch.from_numpy(stream.targets).to(device)
        self.searches = any(rule.needs.retrieval for rule in rules.values())
        self.labels_by_rank: list[Tensor] = []  # (M,) each, of the step under way
        # Processes that share a memory search it together, and a check would search it alone.
        self.first = FirstBatches(() if layout.spread else rules)
        charged = partial(scores.charged, clock_of(device))
        self.read = charged("base_seconds", self._read)
        self.normalize = charged("base_seconds", lambda batch: batch.log_normalizers)
        self.observe = charged("retrieval_seconds", EvalBatch.observation)
        self.learn = charged("base_seconds", self._learn)
        self.remember = charged("retrieval_seconds", self._remember)
        self.count = charged("ngram_seconds", self._count)

    def _read(self, begin: int, end: int) -> Tensor:
        """Return hidden states (B, n, D) of a run of tokens of all streams."""
        if self.schedule.precomputed is None:
            rows = self.contexts[0].head.weight.shape[0]
            states = self.base.read(
                self.vocabulary.readable(self.layout.cut(self.inputs, begin, end), rows)
            )
        else:
            states = self.schedule.precomputed.states(begin, end)
        return states if self.layout.streams > 1 else states[None]

    def count_ngrams(self, first: int) -> None:
        """Count the n-grams of the tokens before a place of all streams again, in the original
        order.
        """
        layout = self.layout
        for number, context in enumerate(self.contexts):
            if (ngrams := context.ngrams) is None:
                continue
            streams = (
                range(len(layout.begins)) if layout.scope == "shared" else [layout.own[number]]
            )
            runs = [
                (layout.begins[stream], min(first, layout.lengths[stream])) for stream in streams
            ]
            texts = [self.targets[begin : begin + length].cpu().numpy() for begin, length in runs]
            contexts = np.concatenate([contexts_of(text, 0, ngrams.order) for text in texts])
            # An interval of all streams comes before the next one; that matters when the counts
            # reach their capacity.
            interval = np.concatenate(
                [np.arange(length) // self.schedule.update_every for _, length in runs]
            )
            order = np.argsort(interval, kind="stable")
            ngrams.add(contexts[order], np.concatenate(texts)[order])

    def predict(self, states: Tensor, begin: int, start: int, stop: int) -> Iterator[Labelled]:
        """Yield the mini-batches of a block; ``states`` (B, n, D) are those from place ``begin``
        on.
        """
        layout, schedule = self.layout, self.schedule
        for group in layout.rounds(start, stop, schedule.update_every):
            if group is None:  # other ranks still need neighbours
                _ = self.searches and EvalBatch(states[0, :0], self.contexts[0]).neighbors
                continue
            hidden = layout.states(group, states, begin)  # (N, D)
            labels = layout.labels(group, self.targets)  # (N,)
            ranked = (
                None if schedule.precomputed is None else schedule.precomputed.ranked(start, stop)
            )
            block = layout.block(group, labels, schedule.update_every, written=schedule.write)
            batch = EvalBatch(hidden, self.contexts[group.owner], block, ranked)
            self.normalize(batch)
            if layout.spread and self.searches:  # once per round, for all rules
                _ = batch.neighbors
            yield Labelled(batch, labels, layout.places(group))

    def score(self, item: Labelled) -> None:
        """Record a mini-batch's losses under every rule, and the time of each."""
        works: dict[str, Work] = {}
        for name, rule in self.rules.items():
            self.first.check(name, rule, item.batch, item.labels)
            with item.batch.stopwatch.time(name) as works[name]:
                losses = self.vocabulary.losses(rule, item.batch, item.labels)
                self.scores.nll[name][item.places] = losses.float().cpu().numpy()
                if self.hooks.check:
                    self.scores.count(name, Safeguards.of(rule, item.batch))
        for observer in self.hooks.observers:
            observer.watch(item.batch, item.labels)
        self.scores.charge(works)

    def _learn(self, labels: Sequence[Tensor]) -> None:
        """Train the base on scored labels, including those of other ranks with the same memory;
        update the contexts.
        """
        own = torch.cat([self.targets[:0], *labels])
        self.labels_by_rank = (
            self.schedule.ranks.all_gather_rows(own) if self.layout.spread else [own]
        )
        if any(map(len, self.labels_by_rank)):
            together, rows = torch.cat(self.labels_by_rank), self.base.head.weight.shape[0]
            with torch.enable_grad():
                self.base.learn(self.vocabulary.readable(together, rows))
            if new := self.vocabulary.new_rows(together, rows):  # words seen for the first time
                self.base.grow(new)
        for context in self.contexts:
            context.set_head(self.base.head)

    def take(self, observed: Observed) -> None:
        """Give observations to the contexts."""
        self.remember(observed)
        if self.contexts[0].ngrams is not None:
            self.count(observed)

    def _remember(self, observed: Observed) -> None:
        for context, observation in observed:
            context.take(observation, write=self.schedule.write)
        if self.layout.spread:
            self.contexts[0].note(
                self.labels_by_rank, self.schedule.ranks.rank, write=self.schedule.write
            )

    def _count(self, observed: Observed) -> None:
        ngrams = self.contexts[0].ngrams
        if not self.layout.spread or ngrams is None:
            for context, observation in observed:
                context.count(observation)
            return
        nothing, own = self.targets.new_zeros(0, ngrams.order + 1), []
        for context, observation in observed:
            contexts, labels = context.pass_on(observation)
            own.append(torch.from_numpy(np.c_[contexts, labels]).to(nothing.device))
        for rows in self.schedule.ranks.all_gather_rows(
            torch.cat([nothing, *own])
        ):  # by rank: all count the same
            ngrams.add(rows[:, :-1].cpu().numpy(), rows[:, -1].cpu().numpy())
