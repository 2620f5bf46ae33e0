"""Observers that the options of an evaluation ask for, and what they found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.evaluation.accuracy import AccuracyLog, TypedWords
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.components import ComponentLog
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.learned import LearnedWords
from hebblm.evaluation.neighbors import NeighborLog
from hebblm.evaluation.observers import KeptObserver
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.passes import Watching
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.word_accuracy import WordsAsked, places_of
from hebblm.report.result.accuracy import Guesses
from hebblm.text.dictionary import UNK
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

Rules = Mapping[str, Predictor]
Watcher = TypeVar("Watcher")


@dataclass(frozen=True, slots=True)
class Observers:
    """Observers of the two passes over a text.

    Args:
        shared: those of the methods on the base as trained.
        dynamic: those of the methods on dynamic evaluation.
        probe: the source's text, scored before and after; None for no probe.
        neighbors: entries that the first tokens retrieve, None if not logged.
        components: shares of the methods' parts in these tokens, None if not logged.
    """

    shared: Watching
    dynamic: Watching
    probe: Probe | None = None
    neighbors: NeighborLog | None = None
    components: ComponentLog | None = None

    def of(self, kind: type[Watcher]) -> list[Watcher]:
        """Return the observers of a kind: that of the shared pass, then that over dynamic
        evaluation; empty if the option that makes them is not set.
        """
        observers: list[Watcher] = []
        for watching in (self.shared, self.dynamic):
            for observer in watching.observers:
                if isinstance(observer, kind):
                    observers.append(observer)
        return observers

    def guesses(self, scenario: Scenario) -> dict[str, Guesses]:
        """Return ranks and keystrokes of the suggestions by method; empty if not requested."""
        logs: list[AccuracyLog | WordsAsked] = [*self.of(AccuracyLog)]
        for watching in (self.shared, self.dynamic):
            if watching.asked is not None:
                logs.append(watching.asked)
        guesses: dict[str, Guesses] = {}
        for log in logs:
            if log.predictors:
                guesses |= log.guesses(scenario.stream)
        return guesses


def observers_for(
    options: EvalOptions,
    scenario: Scenario,
    settings: Hyperparameters,
    shared: Rules,
    dynamic: Rules,
    checkpoint: RunCheckpoint | None = None,
) -> Observers:
    """Return the observers that some options ask for; this is the one place that makes them.

    Args:
        options: what to find besides losses.
        scenario: the opened scenario.
        settings: hyper-parameters.
        shared: methods on the base as trained.
        dynamic: methods on dynamic evaluation.
        checkpoint: checkpoint of the run, None without one.

    Raises:
        UserError: a log of neighbours although no method retrieves; forgetting within one domain.
    """
    probe = None
    if options.forgetting:
        probe = Probe.of(scenario, options.forgetting_tokens)
    neighbors, components = None, None
    logs: list[KeptObserver] = []
    if options.log_neighbors:
        neighbors = _neighbors(options.log_neighbors, scenario, settings, shared, dynamic)
        components = ComponentLog(options.log_neighbors, shared)
        logs = [neighbors, components]
    learned = None
    if options.show_learned:
        subwords = scenario.dictionary if isinstance(scenario.dictionary, Subwords) else None
        learned = LearnedWords(scenario.stream, scenario.vocabulary, subwords)
    pieces = None
    if options.accuracy and isinstance(scenario.dictionary, Subwords):
        pieces = PieceTexts(scenario.dictionary)
    ranks, words = _accuracy(options, scenario, shared, pieces)
    of_shared = Watching(probe, options.check, [*logs, *ranks], words, learned, checkpoint)
    ranks, words = _accuracy(options, scenario, dynamic, pieces)
    of_dynamic = Watching(probe, options.check, ranks, words, None, checkpoint)
    return Observers(of_shared, of_dynamic, probe, neighbors, components)


def _neighbors(
    tokens: int, scenario: Scenario, settings: Hyperparameters, shared: Rules, dynamic: Rules
) -> NeighborLog:
    """Return a log of retrieved entries."""
    if not any(predictor.requirements.retrieval for predictor in shared.values()):
        raise UserError(
            f"{','.join((*shared, *dynamic))} look up no neighbours; add a method that does, such "
            "as knn"
        )
    return NeighborLog(tokens, settings.methods[MbpaConfig], write=scenario.writes)


def _accuracy(
    options: EvalOptions, scenario: Scenario, predictors: Rules, pieces: PieceTexts | None
) -> tuple[Sequence[AccuracyLog], WordsAsked | None]:
    """Return a log of the ranks of all words, or what asks a model of pieces for some of them."""
    if not options.accuracy:
        return (), None
    stream = scenario.stream
    if pieces is not None:
        return (), WordsAsked(predictors, pieces, stream, places_of(stream, options.accuracy_words))
    unknown = None
    if UNK in stream.symbols:
        unknown = stream.symbols.index(UNK)
    return (AccuracyLog(predictors, TypedWords(stream.symbols), unknown),), None
