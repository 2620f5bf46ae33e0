"""An evaluation of all methods, set up once and run many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hebblm.adapt.context import Context
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.adapt.methods.rule import Rule
from hebblm.bench.source import Source
from hebblm.bench.stand_in import Workload
from hebblm.bench.timing import Turn, stopwatch
from hebblm.evaluation.loop import EvaluationScores, evaluate
from hebblm.evaluation.streams import Layout
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, MemoryConfig, build_memory
from hebblm.models.base import Base
from hebblm.text import EvaluationStream


@dataclass(slots=True)
class Harness:
    """An evaluation that can be run again and again from the same beginning.

    Args:
        source: gives the entries of the memory.
        workload: the stream and what reads it.
        rules: every method that is measured.
        memory_config: how entries are kept and searched.
        k: neighbours a query.
        window: of the continuous cache.
        device: where to compute.
    """

    source: Source
    workload: Workload
    rules: dict[str, Rule]
    memory_config: MemoryConfig
    k: int
    window: int
    device: torch.device
    memory: AnyMemory = field(init=False)
    described: dict[str, object] = field(init=False)
    stream: EvaluationStream = field(init=False)
    layout: Layout = field(init=False)
    scores: EvaluationScores = field(init=False)
    base: Base = field(init=False)
    context: Context = field(init=False)

    @torch.no_grad()
    def fill(self, size: int) -> None:
        """Let the memory hold ``size`` entries of the source, with the normalisers of their base logits."""
        head = self.source.head
        self.memory = build_memory(head.weight.shape[1], self.memory_config, self.device)
        for keys, labels in self.source.entries(size):
            self.memory.add(keys, labels, log_normalizers(keys, head))
        self.memory.mark_base()
        self.described = self.memory.describe()

    def turn(self, rules: dict[str, Rule], tokens: int, update_every: int, streams: int = 1) -> Turn:
        """Return a turn that evaluates ``rules`` over the first tokens, from the state before the stream or streams."""
        return stopwatch(
            lambda: self.evaluate(rules, update_every),
            tokens,
            self.device,
            before=lambda: self.rewind(tokens, streams),
        )

    def rewind(self, tokens: int, streams: int = 1) -> None:
        """Return memory, base and methods to where they were before the stream, of which the first tokens are read.

        Args:
            tokens: that :meth:`evaluate` reads.
            streams: as which it reads them, side by side.
        """
        self.memory.reset()
        self.stream = replace(self.workload.stream, ids=self.workload.stream.ids[:tokens])
        self.layout = Layout.of(len(self.stream), streams)
        self.base = self.workload.open(self.layout)
        self.context = Context(
            self.base.head,
            self.memory,
            k=self.k,
            train_counts=torch.from_numpy(self.stream.train_counts).to(self.device),
            window=self.window,
            fixed=True,
            streams=streams,
        )

    def evaluate(
        self,
        rules: dict[str, Rule],
        update_every: int,
        *,
        read_ahead: bool = True,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> EvaluationScores:
        """Read from where :meth:`rewind` has returned to."""
        self.scores = evaluate(
            self.base,
            [self.context],
            rules,
            self.stream,
            UnionVocabulary(),
            update_every=update_every,
            write=any(rule.needs.retrieval for rule in rules.values()),
            read_ahead=read_ahead,
            layout=self.layout,
            progress=progress,
        )
        return self.scores

    def shares(self) -> dict[str, float]:
        """Return the milliseconds a token of the last evaluation's parts; a method's is its time had it run alone."""
        scores, tokens = self.scores, len(self.stream)
        costs = {"base": scores.base_seconds, "retrieval": scores.retrieval_seconds, **scores.seconds}
        return {f"ms_{name}": 1000 * seconds / tokens for name, seconds in costs.items()}

    def case(self, **more: object) -> dict[str, Any]:
        """Return what a row records about its case."""
        classes, dim = self.source.head.weight.shape
        return {
            "architecture": self.workload.model.config.to_dict(),
            "vocabulary": classes,
            "dim": dim,
            "k": self.k,
            "methods": list(self.rules),
            "memory": self.described,
            **more,
            "source": self.workload.describe,
        }
