"""Passes over the stream, one for each base: the shared base, trained or learning, and that of
dynamic evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.methods import ENSEMBLES
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.work import Stopwatch, Work, clock_of
from hebblm.evaluation import training_text
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.learned import LearnedWords
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.observers import Kept, KeptObserver
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.word_accuracy import WordsAsked
from hebblm.models.base import StreamBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.online.layout import Layout
from hebblm.report.result.schema import Forgetting
from hebblm.runtime.progress import bar, log
from hebblm.runtime.ranks import ALONE, Ranks

Losses = npt.NDArray[np.float32]


@dataclass(slots=True)
class Pass:
    """Results of a pass."""

    scores: EvaluationScores
    memory: dict[str, Any] = field(default_factory=dict)  # description of the stream's memory
    forgetting: dict[str, Forgetting] = field(default_factory=dict)  # by method, if requested
    preparation: list[Work] = field(default_factory=list)  # work besides reading the stream
    dynamic: DynamicConfig | None = None  # in a pass of dynamic evaluation, the values that it used
    # what was learned, see LearnedWords, if requested
    suggested: dict[str, Any] = field(default_factory=dict)
    exchanged: dict[str, Any] | None = None  # traffic between several processes, None for one


@dataclass(frozen=True, slots=True)
class Watching:
    """Observers and checkpoint of a pass, besides its losses.

    Args:
        probe: the source's text, scored before and after; None for no probe.
        check: see :class:`~hebblm.evaluation.loop.Hooks`.
        observers: see every mini-batch.
        asked: words that methods are asked for, None for no words.
        learned: asks at the end for what was learned; None for no questions.
        checkpoint: checkpoint of the run, None without one.
    """

    probe: Probe | None = None
    check: bool = False
    observers: Sequence[KeptObserver] = ()
    asked: WordsAsked | None = None
    learned: LearnedWords | None = None
    checkpoint: RunCheckpoint | None = None


def shared_pass(
    scenario: Scenario,
    predictors: Mapping[str, Predictor],
    settings: Hyperparameters,
    watching: Watching | None = None,
    ranks: Ranks = ALONE,
) -> Pass:
    """Run the methods that read the hidden states of the shared base, as trained or learning for
    all methods alike.

    The streams are divided over the ranks; each rank returns the results of all.
    """
    layout = scenario.layout().part(ranks.rank, ranks.size)
    base = scenario.base(settings, streams=layout.streams)
    title = f"evaluate {len(predictors)} method{'s' * (len(predictors) != 1)}"
    sent, waited = ranks.traffic.sent, ranks.traffic.seconds
    shared = _run(
        scenario, base, predictors, settings, title, watching or Watching(), layout, ranks
    )
    if ranks.size > 1:
        traffic = ranks.all_gather_object(
            (ranks.traffic.sent - sent, ranks.traffic.seconds - waited)
        )
        tokens = len(scenario.stream)
        shared.exchanged = {
            "processes": ranks.size,
            "backend": ranks.backend,
            "bytes_a_token": sum(sent for sent, _ in traffic) / tokens,
            "seconds_a_token": sum(seconds for _, seconds in traffic) / ranks.size / tokens,
        }
    return shared


def dynamic_pass(
    scenario: Scenario,
    predictors: Mapping[str, Predictor],
    settings: Hyperparameters,
    watching: Watching | None = None,
) -> Pass:
    """Run dynamic evaluation, which has its own base, and the methods that read its states.

    Base and memory are updated as often as those of all other methods.
    """
    config = settings.dynamic
    if scenario.config.streams > 1:
        log(
            "dynamic evaluation reads the text as one stream: its weights follow what was read last"
        )
    with Stopwatch(clock_of(scenario.device)).time("gradient statistics") as statistics:
        base = dynamic_base(scenario, config, gradient_statistics(scenario, config))
    layout = Layout.of(len(scenario.stream))
    dynamic = _run(
        scenario,
        base,
        predictors,
        settings,
        "dynamic evaluation",
        watching or Watching(),
        layout,
        ALONE,
    )
    dynamic.preparation.append(statistics)
    dynamic.dynamic = base.config
    return dynamic


def gradient_statistics(scenario: Scenario, config: DynamicConfig) -> list[Tensor] | None:
    """Return dynamic evaluation's statistics of the training text, one tensor per parameter, or
    None.
    """
    return training_text.gradient_statistics(scenario.model, config, scenario.training_ids)


def dynamic_base(
    scenario: Scenario, config: DynamicConfig, statistics: list[Tensor] | None
) -> DynamicBase:
    """Return a fresh base of dynamic evaluation, with the :func:`gradient_statistics`."""
    return DynamicBase(scenario.base(), config, statistics)


def _run(
    scenario: Scenario,
    base: StreamBase,
    predictors: Mapping[str, Predictor],
    settings: Hyperparameters,
    title: str,
    watching: Watching,
    layout: Layout,
    ranks: Ranks,
) -> Pass:
    """Read the stream once with ``base`` and score it by every rule."""
    config = scenario.config
    stream = scenario.stream
    checkpoint = watching.checkpoint
    # if none does, no memory is built or written
    retrieve = any(predictor.requirements.retrieval for predictor in predictors.values())
    window = max(predictor.requirements.window for predictor in predictors.values())
    watch = Stopwatch(clock_of(scenario.device))
    with watch.time("memory of the training text") as opening:
        sharing = ranks if layout.spread else ALONE
        memory = scenario.memory(settings, sharing) if retrieve else scenario.empty_memory(settings)
    memories = [memory]
    if len(layout.begins) > layout.together:
        memories = scenario.memories(memory, settings, layout.streams)
    contexts = [
        scenario.context(base, memory, window, streams=layout.streams_a_context)
        for memory in memories
    ]
    for context in contexts:
        context.learn_mixture_weights(predictors.values())
    if contexts[0].ngrams is not None and config.memory_content != "test":
        with watch.time("memory of the training text"):
            scenario.count_training(contexts)
    reading = Pass(EvaluationScores({}), preparation=[opening])
    schedule = Schedule(
        config.update_every,
        layout,
        write=retrieve and scenario.writes,
        read_ahead=not base.trains_online and config.vocabulary == "union",
        ranks=ranks,
    )

    suggesting = Work("suggestions")
    reading.preparation.append(suggesting)

    def ask(asked: WordsAsked, begin: int, end: int) -> None:
        with watch.time(suggesting.name) as work:
            asked.ask(base, contexts[0], begin, end)
        suggesting.seconds += work.seconds

    def read() -> None:
        with watch.time("reading"), bar() as progress:
            task = progress.add_task(title, total=len(stream), unit="tokens")
            hooks = Hooks(
                watching.observers,
                watching.check,
                progress=lambda tokens: progress.advance(task, tokens),
            )
            kept: list[Kept] = list(watching.observers)
            if watching.asked is not None:
                kept.append(watching.asked)
                hooks = replace(hooks, ask=partial(ask, watching.asked))
            if checkpoint is not None:
                hooks = replace(hooks, checkpoint=checkpoint.next_pass(title, kept))
            reading.scores = evaluate(
                base, contexts, predictors, stream, scenario.vocabulary, schedule, hooks
            )
        reading.memory = dict(memories[0].describe())
        if watching.learned is not None:
            with watch.time(suggesting.name) as work:
                reading.suggested = watching.learned.ask(
                    base, contexts[0], predictors, reading.scores.nll
                )
            suggesting.seconds += work.seconds

    if watching.probe is None:
        read()
    else:
        with watch.time("forgetting") as probing:
            reading.forgetting = watching.probe.around(base, contexts[0], predictors, read)
        reading.preparation.append(probing)
    return reading


def ensemble_scores(
    names: Sequence[str], parts: Mapping[str, EvaluationScores], update_every: int
) -> EvaluationScores:
    """Return losses and times of ensembles; an ensemble takes as long as all methods that it
    mixes.
    """
    scores = EvaluationScores({})
    for name in names:
        mixed = [(method, parts[method]) for method in ENSEMBLES[name].parts]
        scores.nll[name] = ensemble_losses(
            [part.nll[method] for method, part in mixed], update_every
        )
        scores.seconds[name] = sum(part.seconds[method] for method, part in mixed)
    return scores


def ensemble_losses(losses: Sequence[Losses], update_every: int) -> Losses:
    """Return ``-log sum_c w_c exp(-l_c)`` (T,) nats, the losses of the mixture of C methods, from
    theirs, (T,) each.

    The shares w come from :class:`hebblm.adapt.functional.OnlineMixtureWeights` and the tokens of
    earlier intervals. They are the same for every possible word, so the mixture is a distribution,
    and known before the token. A loss is +inf if a method gave the token probability 0.
    """
    mixture_weights = F.OnlineMixtureWeights((0.0,) * (len(losses) - 1))
    mixed = []
    # (n, C)
    for interval in torch.split(torch.from_numpy(np.stack(losses, 1)).double(), update_every):
        mixed.append(
            F.gated_losses(
                interval, torch.tensor([mixture_weights.value], dtype=torch.float64).log()
            )
        )
        mixture_weights = mixture_weights.after(interval.tolist())
    return torch.cat(mixed).float().numpy()
