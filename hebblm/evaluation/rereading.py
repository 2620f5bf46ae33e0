"""A scenario's stream, gone through as often as tuning needs, with what no point changes computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hebblm.adapt.context import Context
from hebblm.adapt.rules import Rule
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Observer, evaluate
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.sweep import Sweep, prepare_sweep, sweep_plan
from hebblm.models.base import StreamBase
from hebblm.progress import bar


@dataclass(frozen=True, slots=True)
class Rereading:
    """The scenario's stream, to be gone through as often as is needed.

    Args:
        scenario: opened.
        base: reads the stream.
        context: head, memory and counts.
        sweep: what the base and the memory give, None for a base that learns.
    """

    scenario: Scenario
    base: StreamBase
    context: Context
    sweep: Sweep | None

    @classmethod
    def of(cls, scenario: Scenario, settings: Hyperparameters) -> Rereading:
        """Open base and memory, and compute what does not depend on any point."""
        base, memory = scenario.base(settings), scenario.memory(settings)
        plan = sweep_plan(scenario, settings)
        with bar() as progress:
            task = progress.add_task("states and neighbours", total=len(scenario.stream), unit="tokens")
            sweep = None
            if not scenario.model.keyed:
                sweep = prepare_sweep(
                    base, memory, scenario.stream, plan, lambda tokens: progress.advance(task, tokens)
                )
            progress.update(task, visible=sweep is not None)
        return cls(scenario, base, scenario.context(base, memory, settings.methods.cache.window), sweep)

    def score(
        self, rules: Mapping[str, Rule], title: str, observers: Sequence[Observer] = ()
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Return the losses (T,) of some rules, from the beginning of the stream; nats."""
        self.base.reset()
        self.context.reset()
        self.context.set_head(self.base.head)
        config = self.scenario.config
        with bar() as progress:
            task = progress.add_task(title, total=len(self.scenario.stream), unit="tokens")
            return evaluate(
                self.base,
                self.context,
                rules,
                self.scenario.stream,
                self.scenario.vocabulary,
                update_every=config.update_every,
                write=config.memory_content != "train",
                read_ahead=not self.base.moving,
                sweep=self.sweep,
                observers=observers,
                safeguards=False,  # the exact form beside every point would cost more than the points
                progress=lambda tokens: progress.advance(task, tokens),
            ).nll
