"""Metrics of a result, from losses token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hebblm.evaluation.loop import EvaluationScores
from hebblm.report import MethodResult, frequency_report
from hebblm.report.buckets import occurrence_report, occurrences_so_far
from hebblm.report.numbers import perplexity
from hebblm.report.tokens import running_curve
from hebblm.text import EvaluationStream


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
    """Return the summary of one method's losses, by word, and by piece where tokens are pieces of words.

    Args:
        name: of the method.
        scores: of a pass over the stream.
        stream: the tokens.
        hyperparameters: of the method.
        edges: bounds of the frequency buckets.
        measured: whether words and bytes of the stream are those of the text that it is.
        checked: whether the method adapts the head to a query, and what came of that was counted.
    """
    words = stream.reported
    losses = stream.word_losses(scores.nll[name]).astype(np.float64)
    seconds, errors = scores.seconds[name], scores.errors[name]
    oov = words.oov
    mean, total, counts = float(losses.mean()), float(scores.nll[name].sum(dtype=np.float64)), words.target_counts
    units = stream.words + stream.lines  # a word count leaves out ends of line; token perplexity scores them
    piece = total / len(stream) if words is not stream else None
    return MethodResult(
        nll=mean,
        perplexity=perplexity(mean),
        oov_nll=float(losses[oov].mean()) if oov.any() else None,
        in_vocabulary_nll=None if oov.all() else float(losses[~oov].mean()),
        frequency=() if counts is None else tuple(frequency_report(losses, counts, tuple(edges))),
        hyperparameters=hyperparameters,
        seconds=seconds,
        tokens_per_second=len(stream) / seconds if seconds else 0.0,
        rose_queries=scores.rose[name] if checked else None,
        stabilized_queries=scores.stabilized[name] if checked else None,
        words_perplexity=perplexity(total / units) if measured else None,
        bits_per_byte=stream.bits_per_byte(total / len(stream)) if measured else None,
        running=tuple(running_curve(losses)),
        oov_occurrences=tuple(occurrence_report(losses, occurrences_so_far(words.targets), oov)),
        piece_nll=piece,
        piece_perplexity=None if piece is None else perplexity(piece),
        extra={"fast_error": _summary(errors)} if errors else {},
    )


def _summary(errors: Sequence[float]) -> dict[str, float]:
    """Return number, mean and largest of the fast form's errors, nats a token."""
    return {"queries": len(errors), "mean": sum(errors) / len(errors), "max": max(errors)}
