"""Metrics of a result, from losses token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hebblm.evaluation.loop import EvaluationScores
from hebblm.report import MethodResult, frequency_report
from hebblm.report.numbers import perplexity
from hebblm.report.parts import occurrence_report, occurrences_so_far
from hebblm.report.tokens import running_curve
from hebblm.text import EvaluationStream


def method_result(
    name: str,
    scores: EvaluationScores,
    stream: EvaluationStream,
    hyperparameters: Mapping[str, Any],
    edges: Sequence[int],
    *,
    whole: bool,
    adapts: bool,
) -> MethodResult:
    """Summarise one method's losses.

    Args:
        name: of the method.
        scores: of a pass over the stream.
        stream: the tokens.
        hyperparameters: of the method.
        edges: bounds of the frequency buckets.
        whole: whether the stream is the whole split, so that words and bytes are those of its text.
        adapts: whether the method adapts the head to a query, so that what came of it was counted.
    """
    losses = scores.nll[name].astype(np.float64)
    seconds, errors = scores.seconds[name], scores.errors[name]
    oov = stream.oov
    mean = float(losses.mean())
    total, counts = float(losses.sum()), stream.target_counts
    units = stream.words + stream.lines  # a word count leaves out ends of line; token perplexity scores them
    return MethodResult(
        nll=mean,
        perplexity=perplexity(mean),
        oov_nll=float(losses[oov].mean()) if oov.any() else None,
        in_vocabulary_nll=None if oov.all() else float(losses[~oov].mean()),
        frequency=() if counts is None else tuple(frequency_report(losses, counts, tuple(edges))),
        hyperparameters=hyperparameters,
        seconds=seconds,
        tokens_per_second=len(losses) / seconds if seconds else 0.0,
        rose_queries=scores.rose[name] if adapts else None,
        stabilized_queries=scores.stabilized[name] if adapts else None,
        words_perplexity=perplexity(total / units) if whole else None,
        bits_per_byte=total / math.log(2) / stream.bytes if whole else None,
        running=tuple(running_curve(losses)),
        oov_occurrences=tuple(occurrence_report(losses, occurrences_so_far(stream.targets), oov)),
        extra={"fast_error": _summary(errors)} if errors else {},
    )


def _summary(errors: Sequence[float]) -> dict[str, float]:
    """Return number, mean and largest of the fast form's errors, nats a token."""
    return {"queries": len(errors), "mean": sum(errors) / len(errors), "max": max(errors)}
