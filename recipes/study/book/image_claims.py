"""Claims of the paper about its methods on images, and whether a result bears them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hebblm.report import paper
from hebblm.vision.new_classes.scales import family_of
from hebblm.vision.new_classes.tables import method_name
from hebblm.vision.new_classes.top1 import KEYS
from hebblm.vision.permuted_mnist.result import EXPERIMENT as PERMUTED_MNIST
from recipes.study.book.claims import Claim, pair_claims
from recipes.study.book.images import complete
from recipes.study.book.reasons import UNEXPLAINED

PAIRS = (
    ("mixture", "parametric"),
    ("mbpa", "parametric"),
    ("hebb", "parametric"),
    ("hebb", "mixture"),
    ("hebb", "mbpa"),
    *(("hebb", f"hebb-{version}") for version in ("v1", "v2", "v3", "250", "500")),
)
_PERMUTED = (("hebb", "mbpa"), ("mbpa", "ewc"), ("ewc", "mlp"))
_ALL = 100.0  # per cent
PAPER_SCALE = "paper"
Summary = Mapping[str, float | None] | None
"""Mean and standard deviation over the seeds, as shares; None where nothing was measured."""
Numbers = tuple[str, dict[str, float | None], dict[str, Summary]]
"""What is compared, and by method the right answers: the paper's in per cent, and the result's."""


def image_claims(documents: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Return the paper's claims beside results on its data, margins in percentage points.

    Args:
        documents: by name, results of hebblm-vision.

    Raises:
        UserError: a result lacks a part.
    """
    claims: list[Claim] = []
    for name, document in documents.items():
        with complete(name):
            claims += _of_result(name, document)
    return claims


def _of_result(name: str, document: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the claims about one result."""
    if document["experiment"] == PERMUTED_MNIST:
        yield from _permuted(name, document)
        return
    for where, theirs, ours in _numbers(document):
        means = {method: _mean(summary) for method, summary in ours.items()}
        for claim in pair_claims(where, name, _wrong(theirs), _wrong(means), PAIRS, method_name):
            yield replace(claim, reason="" if claim.holds else _reason(claim, document, ours))


def _reason(claim: Claim, document: Mapping[str, Any], ours: Mapping[str, Summary]) -> str:
    """Return what may be behind a claim that did not reproduce."""
    found = []
    spreads = [
        float(std)
        for name in (claim.better, claim.worse)
        if (std := (ours[name] or {}).get("std")) is not None
    ]
    spread = _ALL * math.hypot(*spreads)
    if spreads and abs(claim.here) <= spread:
        found.append(f"within the spread of the seeds ({spread:.2f} points)")
    if document["scale"] != PAPER_SCALE:
        network = document["settings"].get("backbone")
        found.append(f"scale {document['scale']}" + (f", network {network}" if network else ""))
    return "; ".join(found) or UNEXPLAINED


def _wrong(right: Mapping[str, float | None]) -> dict[str, float]:
    """Return shares of wrong answers in per cent: as of a pair of losses, the smaller is the better."""
    return {method: _ALL - value for method, value in right.items() if value is not None}


def _numbers(document: Mapping[str, Any]) -> Iterator[Numbers]:
    """Yield every column of the paper's tables that the result has."""
    methods, experiment = document["methods"], document["experiment"]
    family = family_of(document["settings"]["backbone"]) if document["data"]["name"] == "CIFAR-100" else None
    if family is None:
        return
    if experiment in ("online", "ablation"):
        for key in KEYS:
            theirs = {name: paper.image(experiment, family, key, name) for name in methods}
            ours = {name: _only(method)[key] for name, method in methods.items()}
            yield f"{experiment}, {key} classes", theirs, ours
    elif experiment == "pretrain-classes":
        for count in next(iter(methods.values()))["conditions"]:
            theirs = {name: paper.image(experiment, family, count, name) for name in methods}
            ours = {name: method["conditions"][count]["overall"] for name, method in methods.items()}
            yield f"online, {count} old classes", theirs, ours
    elif experiment == "incremental":
        for epoch in map(int, paper.image(experiment, family)):
            for key in KEYS:
                theirs = {name: paper.image(experiment, family, str(epoch), key, name) for name in methods}
                ours = {
                    name: _after(method["conditions"]["1:1"], epoch, key) for name, method in methods.items()
                }
                yield f"incremental, epoch {epoch}, {key} classes", theirs, ours


def _permuted(name: str, document: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the order that the paper reads off its figure, by average accuracy where most is stored."""
    size = max(document["settings"]["stored"])
    ours: dict[str, Summary] = {
        method.removesuffix(f"-{size}"): item["average_accuracy"]
        for method, item in document["methods"].items()
    }
    means = {method: _mean(summary) for method, summary in ours.items()}
    for better, worse in _PERMUTED:
        first, second = means.get(better), means.get(worse)
        if first is None or second is None:
            continue
        text = f"{_upper(better)} better than {_upper(worse)}, permuted MNIST"
        claim = Claim(text, name, None, first - second, better, worse)
        yield replace(claim, reason="" if claim.holds else _reason(claim, document, ours))


def _upper(method: str) -> str:
    """Return how a method of permuted MNIST is written."""
    return method.upper() if method in ("mlp", "ewc") else method_name(method)


def _only(method: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a method's summary under the only condition."""
    summary: Mapping[str, Any] = next(iter(method["conditions"].values()))
    return summary


def _after(condition: Mapping[str, Any], epoch: int, key: str) -> Summary:
    """Return the accuracy after an epoch, None where that epoch was not run."""
    points: dict[int, Mapping[str, Summary]] = {point["at"]: point for point in condition["curve"]}
    return points[epoch][key] if epoch in points else None


def _mean(summary: Summary) -> float | None:
    """Return the mean over the seeds in per cent, of what may be missing."""
    if summary is None or summary["mean"] is None:
        return None
    return _ALL * summary["mean"]
