"""The short answer of an image experiment: who is best by how many points, or that its seeds cannot tell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from hebblm.vision.new_classes.tables import method_name
from hebblm.vision.permuted_mnist.document import NAMES
from hebblm.vision.permuted_mnist.result import EXPERIMENT as PERMUTED_MNIST

_CERTAIN = 2.0  # standard deviations over the seeds that a lead has to exceed


def verdict(document: Mapping[str, Any]) -> str:
    """Return one sentence a condition, of timing how many times as long each method takes."""
    if document["experiment"] == "timing":
        times = [
            f"{method_name(name)} {item['ratio']['median']:.2f}"
            for name, item in document["methods"].items()
            if name != "parametric"
        ]
        return f"Times as long as Parametric alone: {', '.join(times)}."
    sentences = {condition: _sentence(shares) for condition, shares in _shares(document).items()}
    if len(sentences) == 1:
        return next(iter(sentences.values()))
    kind = "a balance of {}" if document["experiment"] == "incremental" else "{} old classes"
    return " ".join(f"With {kind.format(condition)}: {text}" for condition, text in sentences.items())


def _shares(document: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return by condition and method the share of right answers, over all classes or tasks, of each seed."""
    shares: dict[str, dict[str, list[float]]] = {}
    permuted = document["experiment"] == PERMUTED_MNIST
    for name, item in document["methods"].items():
        for condition, part in ({"": item} if permuted else item["conditions"]).items():
            key = "average_accuracy" if permuted else "overall"
            shares.setdefault(condition, {})[name] = [seed[key] for seed in part["seeds"]]
    return shares


def _sentence(shares: Mapping[str, list[float]]) -> str:
    """Return who is best under one condition.

    Args:
        shares: of right answers, by method and seed; every seed's pictures are the same for all methods.
    """
    best, following = sorted(shares, key=lambda name: -statistics.fmean(shares[name]))[:2]
    gaps = [100 * (one - other) for one, other in zip(shares[best], shares[following], strict=True)]
    lead, spread = statistics.fmean(gaps), statistics.stdev(gaps) if len(gaps) > 1 else math.inf
    right = f"{100 * statistics.fmean(shares[best]):.1f} % right"
    half = f" ± {spread:.1f}" if len(gaps) > 1 else ""
    ahead = f"{lead:.1f}{half} points ahead of {_name(following)}"
    seeds = "one seed" if len(gaps) == 1 else f"{len(gaps)} seeds"
    if lead > _CERTAIN * spread:
        return f"{_name(best)} is best: {right}, {ahead} over {seeds}."
    return f"{seeds.capitalize()} cannot tell who is best: {_name(best)}, {right}, is {ahead}."


def _name(method: str) -> str:
    """Return how a method is written in any of the experiments."""
    stem, _, point = method.partition(" ")
    return f"{NAMES.get(stem) or method_name(stem)} {point}".rstrip()
