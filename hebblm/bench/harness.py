"""An evaluation of all methods, set up once and run many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hebblm.adapt import Context, Rule
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.bench.source import Source
from hebblm.bench.stand_in import Workload
from hebblm.bench.timing import Turn, stopwatch
from hebblm.evaluation.loop import Scores, evaluate
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
    scores: Scores = field(init=False)
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
        stream, layout = self.beginning(tokens), Layout.of(tokens, streams)
        return stopwatch(
            lambda: self.evaluate(rules, stream, update_every, layout=layout),
            tokens,
            self.device,
            before=lambda: self.rewind(layout),
        )

    def beginning(self, tokens: int) -> EvaluationStream:
        """Return the first tokens of the stream."""
        return replace(self.workload.stream, ids=self.workload.stream.ids[:tokens])

    def rewind(self, layout: Layout | None = None) -> None:
        """Return memory, base and the state of the methods to where they were before the stream.

        Args:
            layout: the streams that are read; None for a single one.
        """
        self.memory.reset()
        if layout is None or layout.streams == 1:
            layout = Layout.of(len(self.workload.stream))
        self.base = self.workload.open(layout)
        self.context = Context(
            self.base.head,
            self.memory,
            k=self.k,
            train_counts=torch.from_numpy(self.workload.stream.train_counts).to(self.device),
            window=self.window,
            fixed=True,
            streams=layout.streams,
        )

    def evaluate(
        self,
        rules: dict[str, Rule],
        stream: EvaluationStream,
        update_every: int,
        *,
        read_ahead: bool = True,
        layout: Layout | None = None,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> Scores:
        """Read the stream from where :meth:`rewind` has returned to."""
        self.scores = evaluate(
            self.base,
            self.context,
            rules,
            stream,
            UnionVocabulary(),
            update_every=update_every,
            write=any(rule.needs.retrieval for rule in rules.values()),
            read_ahead=read_ahead,
            layout=layout,
            progress=progress,
        )
        return self.scores

    def shares(self, tokens: int) -> dict[str, float]:
        """Return what the last evaluation spent where, and how often a query's neighbours' loss rose in MbPA.

        Milliseconds a token, a method's being its time had it run alone; shares of the queries.
        """
        parts = {"base": self.scores.base_seconds, "retrieval": self.scores.retrieval_seconds}
        costs = {**parts, **self.scores.seconds}
        return {
            **{f"ms_{name}": 1000 * seconds / tokens for name, seconds in costs.items()},
            "rose_share": self.scores.rose["mbpa"] / tokens,
        }

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
