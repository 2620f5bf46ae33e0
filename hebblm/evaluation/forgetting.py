"""Forgetting: score the source domain's own text before and after reading another domain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.predictor import Predictor, Requirements
from hebblm.errors import UserError
from hebblm.evaluation.scenario import Scenario
from hebblm.memory.ngram_rows import contexts_of
from hebblm.models.base import StreamBase
from hebblm.online.session import OnlineSession, Unit
from hebblm.online.text import TextSource
from hebblm.report.result.schema import Forgetting
from hebblm.runtime.progress import bar
from hebblm.text import EvaluationStream

SEGMENT = 100  # tokens that are read and scored at once
Losses = dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """The beginning of a split of the source domain, scored by every method without learning from
    it.

    Args:
        scenario: the scenario that reads the other domain.
        stream: stream of the source domain, in the ids of its own dictionary.
    """

    scenario: Scenario
    stream: EvaluationStream

    @classmethod
    def of(cls, scenario: Scenario, tokens: int) -> Probe:
        """Return a probe of the first ``tokens`` of the source's split with the name of the
        target's.
        """
        if scenario.kind != "cross-domain":
            raise UserError(
                f"forgetting compares two domains, and {scenario.counts_in} is the only one here; "
                "use cross_domain=A-to-B"
            )
        stream = scenario.source_stream()
        if stream is None:
            raise UserError(
                f"forgetting needs the text of {scenario.counts_in}; name it with source=CORPUS"
            )
        return cls(scenario, dataclasses.replace(stream, ids=stream.ids[:tokens]))

    def describe(self) -> dict[str, Any]:
        return {
            "corpus": self.scenario.counts_in,
            "split": self.scenario.config.split or "test",
            "tokens": len(self.stream),
        }

    @torch.no_grad()
    def losses(
        self, base: StreamBase, context: Context, predictors: Mapping[str, Predictor], title: str
    ) -> Losses:
        """Return the mean loss of every method, nats per token; base and context do not change."""
        stream = self.stream
        device = context.head.weight.device
        source = TextSource(base.frozen(), self.scenario.vocabulary)
        session = OnlineSession(source, [context], predictors)
        sums = dict.fromkeys(predictors, 0.0)
        inputs, targets = (
            torch.from_numpy(ids).to(device) for ids in (stream.inputs, stream.targets)
        )
        with bar() as progress:
            task = progress.add_task(title, total=len(stream), unit="tokens")
            for begin in range(0, len(stream), SEGMENT):
                end = min(begin + SEGMENT, len(stream))
                contexts = None
                if context.ngrams is not None:
                    contexts = contexts_of(stream.targets[:end], begin, context.ngrams.order)
                batch = EvalBatch(source.read(inputs[begin:end]), context, contexts=contexts)
                for name, losses in session.score(Unit(batch, targets[begin:end])).items():
                    sums[name] += float(losses.double().sum())
                progress.advance(task, end - begin)
        return {name: total / len(stream) for name, total in sums.items()}

    def around(
        self,
        base: StreamBase,
        context: Context,
        predictors: Mapping[str, Predictor],
        read: Callable[[], None],
    ) -> dict[str, Forgetting]:
        """Return, by method, the loss of the source's text before and after ``read``, which reads
        the other domain.

        Afterwards the stream's entries are removed from the memory; the base stays as ``read`` left
        it.
        """
        title = f"{self.scenario.counts_in} before and after"
        before = self.losses(base, context, predictors, title)
        read()
        kept = self.losses(base, context, predictors, title)
        context.reset()
        after = self.losses(base, context, predictors, title)
        forgetting = {}
        for name, predictor in predictors.items():
            with_memory = None
            if predictor.requirements != Requirements():
                with_memory = kept[name]
            forgetting[name] = Forgetting(before[name], after[name], with_memory)
        return forgetting
