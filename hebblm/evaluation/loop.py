"""Evaluation loop: predict, score, update. No method ever sees a label before it is scored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.batch import SEARCH, EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.mbpa import Safeguards
from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.work import Work, clock_of
from hebblm.evaluation.pace import Pace
from hebblm.evaluation.streams import Layout
from hebblm.evaluation.vocabulary import VocabularyPolicy
from hebblm.memory.nearest import Ranked
from hebblm.models.base import Base
from hebblm.ranks import ALONE, Ranks
from hebblm.text import EvaluationStream

if TYPE_CHECKING:
    from hebblm.evaluation.position import Position

Progress = Callable[[int], None]
SECONDS = ("seconds", "own_seconds", "shared_seconds")
COUNTS = ("rose", "stabilized")


class Observer(Protocol):
    """Observer of every mini-batch before its labels are learned from; no method's score depends on it."""

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Look at a mini-batch and its labels (N,)."""


class Known(Protocol):
    """States and neighbours of a stream that were computed before."""

    def states(self, begin: int, end: int) -> Tensor:
        """Return the hidden states (n, D) of a run of tokens."""

    def ranked(self, begin: int, end: int) -> Ranked:
        """Return distances and positions (n, K) of the neighbours of a run of tokens."""


@dataclass(slots=True)
class EvaluationScores:
    """Losses and costs of a pass over the stream.

    Args:
        nll: by method, (T,) float32 losses in nats.
        seconds: by method, time it would take alone: base, retrieval if it uses it, the pieces of work that it shares
            with others, and its own.
        rose: by method, queries whose neighbours' loss rose while they were adapted; nothing unless it is checked.
        stabilized: by method, those of them that were run again at a stable rate; likewise.
        errors: by method, what the fast form cost where it was measured, nats a token; likewise.
        base_seconds: reading and learning of the base.
        retrieval_seconds: search and update of the memory.
        own_seconds: by method, what it did for itself alone.
        shared_seconds: by the name of a piece of work that several methods may share, as it was done once.
        retrieving: the methods that rest on retrieval.
        earlier_seconds: on the clock, of processes that were interrupted.
    """

    nll: dict[str, npt.NDArray[np.float32]]
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    rose: Counter[str] = field(default_factory=Counter)
    stabilized: Counter[str] = field(default_factory=Counter)
    errors: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    base_seconds: float = 0.0
    retrieval_seconds: float = 0.0
    own_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    shared_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    retrieving: set[str] = field(default_factory=set)
    earlier_seconds: float = 0.0

    def charge(self, works: Mapping[str, Work]) -> None:
        """Charge methods for their work on a mini-batch, and each in full for every piece that it rests on."""
        pieces = {name: work.pieces() for name, work in works.items()}
        for name, work in works.items():
            self.own_seconds[name] += work.seconds
            self.seconds[name] += work.seconds + sum(piece.seconds for piece in pieces[name])
        for piece in set().union(*pieces.values()):
            self.shared_seconds[piece.name] += piece.seconds
        self.retrieving |= {name for name, found in pieces.items() if any(piece.name == SEARCH for piece in found)}

    def of_all(self, ranks: Ranks, layout: Layout) -> EvaluationScores:
        """Return what all ranks found: all losses, the sum of what was counted, and their mean time."""
        if ranks.size == 1:
            return self
        nll = {
            name: ranks.all_gather(torch.from_numpy(losses[layout.text])).numpy() for name, losses in self.nll.items()
        }
        found = EvaluationScores(nll, earlier_seconds=self.earlier_seconds)
        for totals in ranks.all_gather_object(self.totals()):
            found.add(totals, ranks.size)
        for errors in ranks.all_gather_object(self.errors):
            for name, values in errors.items():
                found.errors[name] += values
        return found

    def totals(self) -> dict[str, Any]:
        """Return all that :meth:`add` adds up, as JSON."""
        by_name = {name: dict(getattr(self, name)) for name in (*SECONDS, *COUNTS)}
        whole = {"base": self.base_seconds, "retrieval": self.retrieval_seconds}
        return {**by_name, **whole, "retrieving": sorted(self.retrieving)}

    def add(self, totals: Mapping[str, Any], ranks: int = 1) -> None:
        """Add what one of several ranks, or an earlier process, has counted, and its share of the mean time."""
        for name in SECONDS:
            for key, seconds in totals[name].items():
                getattr(self, name)[key] += seconds / ranks
        for name in COUNTS:
            getattr(self, name).update(totals[name])
        self.base_seconds += totals["base"] / ranks
        self.retrieval_seconds += totals["retrieval"] / ranks
        self.retrieving.update(totals["retrieving"])

    def count(self, name: str, needed: Safeguards) -> None:
        """Add what happened to the queries of a mini-batch."""
        self.rose[name] += int(needed.rose.sum())
        self.stabilized[name] += int(needed.stabilized.sum())
        self.errors[name] += needed.errors.tolist()


@torch.no_grad()
def evaluate(
    base: Base,
    contexts: Sequence[Context],
    rules: Mapping[str, Rule],
    stream: EvaluationStream,
    vocabulary: VocabularyPolicy,
    *,
    update_every: int,
    layout: Layout | None = None,
    write: bool = True,
    read_ahead: bool = False,
    known: Known | None = None,
    observers: Sequence[Observer] = (),
    check: bool = False,
    progress: Progress = lambda tokens: None,
    position: Position | None = None,
    ranks: Ranks = ALONE,
) -> EvaluationScores:
    """Score every token of a stream by every method, with one forward pass and one retrieval for all.

    The loop is equivalent to, for each interval of ``update_every`` tokens::

        batch = EvalBatch(base.read(inputs), context)  # what the model knows before each label
        for rule in rules: rule.score(batch, labels)
        observation = batch.observation(labels)               # of the predictions as they were
        base.learn(labels)
        context.set_head(base.head)
        context.take(observation)                        # memory, counts, window, shares

    A fixed base's states do not depend on when labels are observed. So intervals shorter than a block are predicted
    together, each token from what was observed before its own interval alone: what was stored before the block by
    retrieval, and earlier rows of the block under a mask (:mod:`hebblm.memory.causal`). A memory that has no such
    search, and a base that learns or grows, take one interval at a time.

    Of streams that are read side by side, the intervals of all are scored before any of them is observed.

    Args:
        base: reads the stream; may learn after scoring, for every method alike.
        contexts: their head must be the base's; one for each stream where they share no memory, else a single one.
        rules: by name.
        stream: the tokens.
        vocabulary: how unseen words are charged.
        update_every: tokens of a stream between two updates of memory and base.
        layout: the streams that the text is cut into, as many as the base reads; None for a single one.
        write: add observed pairs to the memory; False evaluates with what it holds. It is searched if a rule asks.
        read_ahead: read and predict more than one interval at a time; only for a fixed base of fixed vocabulary.
        known: states and neighbours of this very stream, base and memory, where they were computed before; the base is
            then not read, nor the memory searched.
        observers: see every mini-batch once it is scored, before it is learned from.
        check: count the queries whose neighbours' loss rose, and compare MbPA's fast form with the exact one on one
            query in a thousand.
        progress: called with the number of tokens done since the last call.
        position: where the pass stands on disk; it goes on from there. None for one that always begins anew.
        ranks: over which the streams are divided; where these share a memory, it is a
            :class:`~hebblm.memory.ShardedMemory`.

    Returns:
        Losses of all tokens, in order, nats.
    """
    total, device = len(stream), contexts[0].head.weight.device
    layout = (layout or Layout.of(total)).part(ranks.rank, ranks.size)
    searches = any(rule.needs.retrieval for rule in rules.values())
    inputs = torch.from_numpy(stream.inputs).to(device)
    targets = torch.from_numpy(stream.targets).to(device)
    for each in contexts:
        each.learn_shares(rules.values())
    pace = Pace.of(update_every, ahead=read_ahead, streams=layout.together, spread=layout.spread)
    memories = [each.memory for each in contexts] if write else []
    scores = EvaluationScores({name: np.empty(total, dtype=np.float32) for name in rules})
    clock = clock_of(device)
    place = 0 if position is None else position.begin(contexts, scores, layout, ranks)
    if place:
        progress(layout.tokens(0, place))
    for begin in range(place, layout.longest, pace.ahead):
        started = clock()
        end = min(begin + pace.ahead, layout.longest)
        if known is None:
            rows = contexts[0].head.weight.shape[0]
            states = base.read(vocabulary.readable(layout.cut(inputs, begin, end), rows))
        else:
            states = known.states(begin, end)
        states = states if layout.streams > 1 else states[None]  # (B, n, D)
        scores.base_seconds += clock() - started
        for start, stop in pace.blocks(begin, end, memories):
            observations = []
            for group in layout.rounds(start, stop, update_every):
                if group is None:  # other ranks ask for neighbours still
                    _ = searches and EvalBatch(states[0, :0], contexts[0]).neighbors
                    continue
                own, places = contexts[group.owner], layout.places(group)
                hidden = layout.states(group, states, begin)  # (N, D)
                labels = layout.labels(group, targets)  # (N,)
                ranked = None if known is None else known.ranked(start, stop)
                batch = EvalBatch(hidden, own, layout.block(group, labels, update_every, written=write), ranked)
                started = clock()
                _ = batch.log_normalizers
                scores.base_seconds += clock() - started
                if layout.spread and searches:  # once a round, whichever rule asks first
                    _ = batch.neighbors
                works: dict[str, Work] = {}
                for name, rule in rules.items():
                    with batch.stopwatch.time(name) as works[name]:
                        losses = vocabulary.losses(rule, batch, labels)
                        scores.nll[name][places] = losses.float().cpu().numpy()
                        if check:
                            scores.count(name, Safeguards.of(rule, batch))
                for observer in observers:
                    observer.watch(batch, labels)
                scores.charge(works)
                started = clock()
                observations.append((own, batch.observation(labels)))
                scores.retrieval_seconds += clock() - started
            started = clock()
            labels = torch.cat([targets[:0], *(observation.labels for _, observation in observations)])
            heard = ranks.all_gather_rows(labels) if layout.spread else [labels]
            if any(map(len, heard)):
                _advance(base, torch.cat(heard), vocabulary)
            for each in contexts:
                each.set_head(base.head)
            scores.base_seconds += (now := clock()) - started
            for own, observation in observations:
                own.take(observation, write=write)
            if layout.spread:
                contexts[0].note(heard, ranks.rank, write=write)
            scores.retrieval_seconds += clock() - now
            if position is not None:
                position.note(observations, written=write)
            progress(layout.tokens(start, stop))
        if position is not None:
            position.reach(end)
    for name in rules:
        update = scores.retrieval_seconds if name in scores.retrieving else 0.0
        scores.seconds[name] += scores.base_seconds + update
    scores.retrieval_seconds += scores.shared_seconds.pop(SEARCH, 0.0)
    return scores.of_all(ranks, layout)


def _advance(base: Base, labels: Tensor, vocabulary: VocabularyPolicy) -> None:
    """Let the base learn from scored labels, and give words seen for the first time their rows."""
    rows = base.head.weight.shape[0]
    with torch.enable_grad():
        base.learn(vocabulary.readable(labels, rows))
    if new := vocabulary.new_rows(labels, rows):
        base.grow(new)
