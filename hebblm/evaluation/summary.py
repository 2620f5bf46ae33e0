"""What a result says of a run: numbers of each method, of each pair, and of its scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from hebblm.adapt.methods import DYNAMIC, ENSEMBLES, METHODS
from hebblm.evaluation.accuracy import NEVER, NOT_ASKED, letters_of
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.passes import Pass
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scores import EvaluationScores
from hebblm.report import MethodResult, ScenarioRecord, frequency_report
from hebblm.report.result.accuracy import Accuracy, Guesses, accuracy_report
from hebblm.report.result.methods import BASE
from hebblm.report.result.numbers import perplexity
from hebblm.report.result.parts import (
    OOV_BY_OCCURRENCE,
    PIECES,
    Bootstrap,
    bootstrap_gains,
    occurrence_report,
    occurrences_so_far,
    paired_gains,
    stream_parts,
)
from hebblm.report.result.schema import METHOD, RUN, SHARED, Part
from hebblm.report.result.tokens import running_curve
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import UNK

Losses = npt.NDArray[np.float32]


def method_result(
    name: str,
    scores: EvaluationScores,
    stream: EvaluationStream,
    hyperparameters: Mapping[str, Any],
    edges: Sequence[int],
    *,
    measured: bool,
    checked: bool,
) -> MethodResult:
    """Return a summary of one method's losses, by word, and by piece if tokens are pieces of
    words.
    """
    words = stream.reported
    oov = words.oov
    counts = words.target_counts
    losses = stream.word_losses(scores.nll[name]).astype(np.float64)  # (U,)
    mean = float(losses.mean())
    total = float(scores.nll[name].sum(dtype=np.float64))
    # A word count leaves out ends of line, which token perplexity scores.
    units = stream.words + stream.lines
    piece = None
    if words is not stream:
        piece = total / len(stream)
    seconds = scores.seconds[name]
    errors = scores.errors[name]
    extra = {}
    if errors:
        mean_error = sum(errors) / len(errors)
        extra["fast_error"] = {"queries": len(errors), "mean": mean_error, "max": max(errors)}
    return MethodResult(
        nll=mean,
        perplexity=perplexity(mean),
        oov_nll=float(losses[oov].mean()) if oov.any() else None,
        in_vocabulary_nll=None if oov.all() else float(losses[~oov].mean()),
        frequency=() if counts is None else tuple(frequency_report(losses, counts, tuple(edges))),
        hyperparameters=hyperparameters,
        seconds=seconds,
        tokens_per_second=len(stream) / seconds if seconds else 0.0,
        rose_queries=scores.loss_increased[name] if checked else None,
        stabilized_queries=scores.retried[name] if checked else None,
        words_perplexity=perplexity(total / units) if measured else None,
        bits_per_byte=stream.bits_per_byte(total / len(stream)) if measured else None,
        running=tuple(running_curve(scores.nll[name])),
        oov_occurrences=tuple(occurrence_report(losses, occurrences_so_far(words.targets), oov)),
        piece_nll=piece,
        piece_perplexity=None if piece is None else perplexity(piece),
        extra=extra,
    )


def hyperparameters_of(name: str, settings: Hyperparameters) -> dict[str, Any]:
    """Return the settings that a method depends on, as JSON."""
    if name in ENSEMBLES:
        return {part: hyperparameters_of(part, settings) for part in ENSEMBLES[name].parts}
    values = METHODS[name].hyperparameters(settings.methods)
    dynamic = asdict(settings.dynamic)
    if name == DYNAMIC:
        return dynamic | values
    if METHODS[name].uses_dynamic_base:
        return {DYNAMIC: dynamic, "adaptation": values}
    return values


def time_parts(method_pass: Pass, whose: str = "") -> list[Part]:
    scores = method_pass.scores
    times = {work.name: work.seconds for work in method_pass.preparation}
    times["base"] = scores.base_seconds
    times["retrieval"] = scores.retrieval_seconds
    parts = []
    for name, seconds in times.items():
        parts.append(Part(RUN, name + whose, seconds))
    for name, seconds in scores.shared_seconds.items():
        parts.append(Part(SHARED, name + whose, seconds))
    for name, seconds in scores.own_seconds.items():
        parts.append(Part(METHOD, name, seconds))
    return [part for part in parts if part.seconds]


def scenario_record(scenario: Scenario, exchanged: Mapping[str, Any] | None) -> ScenarioRecord:
    """Return a result's record of its scenario; ``exchanged`` is the traffic between processes,
    None for one.
    """
    config = scenario.config
    stream = scenario.stream.reported
    extra: dict[str, Any] = {
        "source_vocabulary": stream.source_size,
        "vocabulary_size": stream.vocabulary_size,
        "new_rows": config.new_rows,
        "update_every": config.update_every,
        "part": scenario.part,
        "whole_split": scenario.whole,
    }
    if scenario.total is not None:
        extra["split_tokens"] = scenario.total
    extra["unk_tokens"] = stream.occurrences(UNK)
    extra["tokenizer"] = scenario.training_tokenizer
    extra["target_tokenizer"] = scenario.tokenizer
    if scenario.column is not None:
        extra["column"] = scenario.column
    extra |= scenario.pieces()
    if config.streams > 1:
        extra["streams"] = config.streams
        extra["memory_scope"] = config.memory_scope
    if exchanged is not None:
        extra["processes"] = exchanged
    return ScenarioRecord(
        kind=scenario.kind,
        source=scenario.source,
        target=scenario.target,
        split=scenario.split,
        normalization=scenario.normalization,
        vocabulary=config.vocabulary,
        tokens=len(stream),
        oov_tokens=int(stream.oov.sum()),
        oov_types=stream.oov_types,
        extra=extra,
    )


def gains_of(
    scenario: Scenario,
    nll: Mapping[str, Losses],
    by_token: Mapping[str, Losses],
    edges: tuple[int, ...],
    bootstrap: Bootstrap,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gains of the methods, by name, and the gains of each over each other."""
    stream = scenario.stream.reported
    parts = stream_parts(
        stream.target_counts, occurrences_so_far(stream.targets), stream.oov, edges
    )
    gains = bootstrap_gains(nll, parts, bootstrap)
    larger = {name: part for name, part in parts.items() if name not in OOV_BY_OCCURRENCE}
    paired = paired_gains(nll, larger, bootstrap)
    # gains a piece as well as a word, because a text without spaces has few words
    if scenario.closed:
        every = {PIECES: np.ones(len(scenario.stream), dtype=np.bool_)}
        for name, of_pieces in bootstrap_gains(by_token, every, bootstrap).items():
            gains[name] += of_pieces
        for name, others in paired_gains(by_token, every, bootstrap).items():
            for other, part in others.items():
                paired[name][other] |= part
    return gains, paired


def suggestions_of(
    stream: EvaluationStream,
    guesses: Mapping[str, Guesses],
    edges: tuple[int, ...],
    bootstrap: Bootstrap,
) -> dict[str, tuple[Accuracy, ...]]:
    """Return how well methods suggest words, part by part."""
    words = stream.reported
    parts = stream_parts(words.target_counts, occurrences_so_far(words.targets), words.oov, edges)
    unknown = words.symbols.index(UNK) if UNK in words.symbols else NEVER
    order = [name for name in (BASE, *guesses) if name in guesses]  # gains are over the base
    there = words.targets != unknown
    for guessed in guesses.values():  # all were asked for the same words
        there &= guessed.rank != NOT_ASKED
    return accuracy_report(
        {name: guesses[name] for name in order}, letters_of(stream), there, parts, bootstrap
    )


def pieces_of_parts(stream: EvaluationStream, edges: tuple[int, ...]) -> dict[str, int]:
    """Return the pieces of each part of the text; a piece of several words counts for each in equal
    parts.
    """
    assert stream.pieces is not None
    words = stream.reported
    pieces = stream.pieces.sums(np.ones(len(stream)))
    parts = stream_parts(words.target_counts, occurrences_so_far(words.targets), words.oov, edges)
    return {name: round(float(pieces[mask].sum())) for name, mask in parts.items()}
