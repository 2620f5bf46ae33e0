"""Passes over the stream, one for each base: that as trained or as it learns, and that of dynamic evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.work import Stopwatch, Work, clock_of
from hebblm.evaluation import gradients
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import EvaluationScores, evaluate
from hebblm.evaluation.neighbors import NeighborLog
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.streams import Layout
from hebblm.models.base import StreamBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.progress import bar, say
from hebblm.ranks import ALONE, Ranks
from hebblm.report.result import Forgetting


@dataclass(slots=True)
class Pass:
    """Findings of a pass.

    Args:
        scores: losses and costs.
        memory: description of the memory behind the stream.
        forgetting: by method, where it was asked for.
        preparation: what was done besides reading the stream.
        dynamic: of a pass of dynamic evaluation, its values as they were used.
        exchanged: what several processes told each other, None for one.
    """

    scores: EvaluationScores
    memory: dict[str, Any] = field(default_factory=dict)
    forgetting: dict[str, Forgetting] = field(default_factory=dict)
    preparation: list[Work] = field(default_factory=list)
    dynamic: DynamicConfig | None = None
    exchanged: dict[str, Any] | None = None


def shared_pass(
    scenario: Scenario,
    rules: Mapping[str, Rule],
    settings: Hyperparameters,
    *,
    log: NeighborLog | None = None,
    probe: Probe | None = None,
    check: bool = False,
    ranks: Ranks = ALONE,
) -> Pass:
    """Run the methods that read the hidden states of the base as trained, or as it learns for all alike.

    Args:
        scenario: opened.
        rules: by name.
        settings: hyper-parameters.
        log: notes neighbours, None for nothing.
        probe: the source's text before and after, None for nothing.
        check: see :func:`~hebblm.evaluation.loop.evaluate`.
        ranks: over which the streams are divided; each returns what all found.
    """
    layout = scenario.layout().part(ranks.rank, ranks.size)
    base = scenario.base(settings, streams=layout.streams)
    title = f"evaluate {len(rules)} methods"
    sent, waited = ranks.traffic.sent, ranks.traffic.seconds
    found = _run(scenario, base, rules, settings, title, log=log, probe=probe, check=check, layout=layout, ranks=ranks)
    if ranks.size > 1:
        told = ranks.all_gather_object((ranks.traffic.sent - sent, ranks.traffic.seconds - waited))
        tokens = len(scenario.stream)
        found.exchanged = {
            "processes": ranks.size,
            "backend": ranks.backend,
            "bytes_a_token": sum(sent for sent, _ in told) / tokens,
            "seconds_a_token": sum(seconds for _, seconds in told) / ranks.size / tokens,
        }
    return found


def dynamic_pass(
    scenario: Scenario,
    rules: Mapping[str, Rule],
    settings: Hyperparameters,
    *,
    probe: Probe | None = None,
    check: bool = False,
) -> Pass:
    """Run dynamic evaluation, a base of its own, and the methods that read its moving states.

    Base and memory are updated as often as those of all other methods.

    Args:
        scenario: opened.
        rules: by name.
        settings: hyper-parameters.
        probe: the source's text before and after, None for nothing.
        check: see :func:`~hebblm.evaluation.loop.evaluate`.

    Raises:
        UserError: the rms rule, or a rate that is to be measured, without the training text.
    """
    config = settings.dynamic
    if scenario.config.streams > 1:
        say("dynamic evaluation reads the text as one stream: its weights follow what was read last")
    with Stopwatch(clock_of(scenario.device)).time("gradient statistics") as statistics:
        base = dynamic_base(scenario, config, gradient_statistics(scenario, config))
    layout = Layout.of(len(scenario.stream))
    found = _run(scenario, base, rules, settings, "dynamic evaluation", probe=probe, check=check, layout=layout)
    found.preparation.append(statistics)
    found.dynamic = base.config
    return found


def gradient_statistics(scenario: Scenario, config: DynamicConfig) -> list[Tensor] | None:
    """Return what dynamic evaluation needs to know of the training text, one tensor a parameter; None for nothing.

    Raises:
        UserError: the training text is not at hand.
    """
    if not config.needs_statistics:
        return None
    return gradients.mean_squares(scenario.model, scenario.training_ids()[: config.statistics], config.segment)


def dynamic_base(scenario: Scenario, config: DynamicConfig, mean_squares: list[Tensor] | None) -> DynamicBase:
    """Return a fresh base of dynamic evaluation; ``mean_squares``: see :func:`gradient_statistics`."""
    return DynamicBase(scenario.base(), config, mean_squares)


def _run(
    scenario: Scenario,
    base: StreamBase,
    rules: Mapping[str, Rule],
    settings: Hyperparameters,
    title: str,
    *,
    probe: Probe | None,
    check: bool,
    layout: Layout,
    log: NeighborLog | None = None,
    ranks: Ranks = ALONE,
) -> Pass:
    """Read the stream once by ``base`` and score it by every rule."""
    config, stream = scenario.config, scenario.stream
    retrieve = any(rule.needs.retrieval for rule in rules.values())  # otherwise no memory is built or written
    window = max(rule.needs.window for rule in rules.values())
    watch = Stopwatch(clock_of(scenario.device))
    with watch.time("memory of the training text") as opening:
        sharing = ranks if layout.spread else ALONE
        memory = scenario.memory(settings, sharing) if retrieve else scenario.empty_memory(settings)
    memories = [memory]
    if len(layout.begins) > layout.together:
        memories = scenario.memories(memory, settings, layout.streams)
    contexts = [scenario.context(base, each, window, streams=layout.beside) for each in memories]
    context = contexts[0]
    context.learn_shares(rules.values())
    found = Pass(EvaluationScores({}), preparation=[opening])
    observers = [] if log is None else [log]

    def read() -> None:
        with watch.time("reading"), bar() as progress:
            task = progress.add_task(title, total=len(stream), unit="tokens")
            found.scores = evaluate(
                base,
                contexts,
                rules,
                stream,
                scenario.vocabulary,
                update_every=config.update_every,
                layout=layout,
                write=retrieve and scenario.writes,
                read_ahead=not base.moving and config.vocabulary == "union",
                observers=observers,
                check=check,
                progress=lambda tokens: progress.advance(task, tokens),
                ranks=ranks,
                position=None if scenario.saved is None else scenario.saved.position(title, base, observers),
            )
        found.memory = dict(memories[0].describe())

    if probe is None:
        read()
    else:
        with watch.time("forgetting") as probing:
            found.forgetting = probe.around(base, context, rules, read)
        found.preparation.append(probing)
    return found
