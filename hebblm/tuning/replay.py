"""A scenario's stream, read as often as needed; quantities that no hyper-parameter changes are
computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hebblm.adapt.context import Context
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.observers import KeptObserver
from hebblm.evaluation.scenario import Scenario
from hebblm.models.base import StreamBase
from hebblm.runtime.progress import bar
from hebblm.runtime.ranks import current
from hebblm.tuning.points import Losses, divided
from hebblm.tuning.sweep import Sweep, prepare_sweep, sweep_plan


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario's stream, with its base and memory."""

    scenario: Scenario  # opened
    base: StreamBase
    context: Context  # head, memory and counts
    every: int  # tokens between two updates
    write: bool  # whether what was observed goes to the memory
    sweep: Sweep | None = None  # what the base and the memory give, None for a base that learns
    checkpoint: RunCheckpoint | None = None  # of the run, None without one

    @classmethod
    def of(
        cls, scenario: Scenario, settings: Hyperparameters, checkpoint: RunCheckpoint | None = None
    ) -> Replay:
        """Open base and memory, and let the first rank compute the quantities that do not depend on
        any point.
        """
        with current().in_turn():
            base = scenario.base(settings)
            memory = scenario.memory(settings)
            sweep = None
            plan = sweep_plan(scenario, settings)
            with bar() as progress:
                task = progress.add_task(
                    "states and neighbours", total=len(scenario.stream), unit="tokens"
                )
                if not scenario.model.keyed:
                    sweep = prepare_sweep(
                        base,
                        memory,
                        scenario.stream,
                        plan,
                        lambda tokens: progress.advance(task, tokens),
                    )
                progress.update(task, visible=sweep is not None)
        context = scenario.context(base, memory, settings.methods[CacheConfig].window)
        return cls(
            scenario,
            base,
            context,
            scenario.config.update_every,
            scenario.writes,
            sweep,
            checkpoint,
        )

    def score(
        self,
        predictors: Mapping[str, Predictor],
        title: str,
        observers: Sequence[KeptObserver] = (),
        watched: Sequence[Predictor] = (),
    ) -> dict[str, Losses]:
        """Return the losses (T,) of some rules, from the beginning of the stream; nats.

        Several ranks divide the rules; every rank shows the observers all mini-batches.
        """
        names = list(predictors)

        def compute(indices: Sequence[int]) -> dict[int, Losses]:
            if not (indices or observers):
                return {}
            losses = self.read(
                {names[index]: predictors[names[index]] for index in indices},
                title,
                observers,
                watched,
            )
            return {index: losses[names[index]] for index in indices}

        return dict(zip(names, divided(len(names), compute), strict=True))

    def read(
        self,
        predictors: Mapping[str, Predictor],
        title: str,
        observers: Sequence[KeptObserver] = (),
        watched: Sequence[Predictor] = (),
    ) -> dict[str, Losses]:
        """Return the losses (T,) of some rules, read by this rank alone; see :meth:`score`."""
        checkpoint = None
        if self.checkpoint is not None:
            checkpoint = self.checkpoint.next_pass(title, observers)
        self.base.reset()
        self.context.learners = ()  # what an earlier reading learned would be solved for in vain
        self.context.reset()
        self.context.learn_mixture_weights(watched)
        self.context.set_head(self.base.head)
        with bar() as progress:
            task = progress.add_task(title, total=len(self.scenario.stream), unit="tokens")
            scores = evaluate(
                self.base,
                [self.context],
                predictors,
                self.scenario.stream,
                self.scenario.vocabulary,
                Schedule(
                    self.every,
                    write=self.write,
                    read_ahead=not self.base.trains_online,
                    precomputed=self.sweep,
                ),
                Hooks(
                    observers,
                    progress=lambda tokens: progress.advance(task, tokens),
                    checkpoint=checkpoint,
                ),
            )
        return {name: nll.astype(np.float64) for name, nll in scores.nll.items()}


def describe(scenario: Scenario) -> dict[str, Any]:
    """What is recorded of the scenario of a tuning, as JSON."""
    config = scenario.config
    texts = {"source": scenario.source, "target": scenario.target}
    if scenario.column is not None:
        texts["column"] = scenario.column
    return {
        **texts,
        "split": scenario.split,
        "tokens": len(scenario.stream),
        "normalization": scenario.normalization,
        "memory_content": config.memory_content,
        "k": config.k,
        "update_every": config.update_every,
    }
