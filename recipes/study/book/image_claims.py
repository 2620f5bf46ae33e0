"""Claims of the paper about its methods on images, and whether a result bears them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from hebblm.vision import paper
from hebblm.vision.paper import family_of
from hebblm.vision.result import KEYS, paired_interval
from hebblm.vision.settings import PERMUTED_MNIST
from hebblm.vision.tables import method_name
from recipes.study.book.claims import Claim, Interval, pair_claims
from recipes.study.book.images import complete
from recipes.study.book.reasons import UNEXPLAINED

PAIRS = (
    ("mixture", "parametric"),
    ("mbpa", "parametric"),
    ("hebb", "parametric"),
    ("hebb", "mixture"),
    ("hebb", "mbpa"),
)
VERSIONS = tuple(("hebb", f"hebb-{version}") for version in ("v1", "v2", "v3", "250", "500"))
_PERMUTED = (("hebb", "mbpa"), ("mbpa", "ewc"), ("ewc", "mlp"))
_ALL = 100.0  # per cent
PAPER_SCALE = "paper"
Shares = Mapping[str, Sequence[float]]
"""By method, the share of right answers of each seed."""
Numbers = tuple[str, dict[str, float | None], dict[str, list[float]]]
"""What is compared, and by method the right answers: the paper's in per cent, and the result's of
each seed.
"""


def image_claims(documents: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Return the paper's claims next to results on its data, margins in percentage points."""
    claims: list[Claim] = []
    for name, document in documents.items():
        with complete(name):
            claims += _of_result(name, document)
    return claims


def _of_result(name: str, document: Mapping[str, Any]) -> Iterator[Claim]:
    if document["experiment"] == PERMUTED_MNIST:
        yield from _permuted(name, document)
        return
    for where, theirs, ours in _numbers(document):
        means = {method: _ALL * fmean(shares) for method, shares in ours.items() if shares}
        # The ablation repeats the experiment online: what is no version of Hebb is a claim there
        # already.
        pairs = VERSIONS if document["experiment"] == "ablation" else (*PAIRS, *VERSIONS)
        claims = pair_claims(
            where,
            name,
            _wrong(theirs),
            _wrong(means),
            pairs,
            method_name,
            interval=partial(_interval, ours),
        )
        yield from (replace(claim, reason=_reason(claim, document)) for claim in claims)


def _interval(ours: Shares, better: str, worse: str) -> Interval:
    """Return the paired interval of a margin in percentage points; None for a single seed."""
    _, low, high = (_ALL * end for end in paired_interval(ours[better], ours[worse]))
    return (low, high) if math.isfinite(low) else None


def _reason(claim: Claim, document: Mapping[str, Any]) -> str:
    """Return possible reasons for a claim's outcome."""
    if document["scale"] == PAPER_SCALE:
        return "" if claim.outcome == "reproduced" else UNEXPLAINED
    network = document["settings"].get("backbone")
    return f"scale {document['scale']}" + (f", network {network}" if network else "")


def _wrong(right: Mapping[str, float | None]) -> dict[str, float]:
    """Return shares of wrong answers in per cent: as of a pair of losses, the smaller is the
    better.
    """
    return {method: _ALL - value for method, value in right.items() if value is not None}


def _numbers(document: Mapping[str, Any]) -> Iterator[Numbers]:
    """Yield every column of the paper's tables that the result has."""
    methods, experiment = document["methods"], document["experiment"]
    family = (
        family_of(document["settings"]["backbone"])
        if document["data"]["name"] == "CIFAR-100"
        else None
    )
    if family is None:
        return
    if experiment in ("online", "ablation"):
        for key in KEYS:
            theirs = {name: paper.image(experiment, family, key, name) for name in methods}
            ours = {
                name: _right(next(iter(m["conditions"].values())), key)
                for name, m in methods.items()
            }
            yield f"{experiment}, {key} classes", theirs, ours
    elif experiment == "pretrain-classes":
        for count in next(iter(methods.values()))["conditions"]:
            theirs = {name: paper.image(experiment, family, count, name) for name in methods}
            ours = {name: _right(m["conditions"][count], "overall") for name, m in methods.items()}
            yield f"online, {count} old classes", theirs, ours
    elif experiment == "incremental":
        for epoch in map(int, paper.image(experiment, family)):
            for key in KEYS:
                theirs = {
                    name: paper.image(experiment, family, str(epoch), key, name) for name in methods
                }
                ours = {
                    name: _right(m["conditions"]["1:1"], key, epoch) for name, m in methods.items()
                }
                yield f"incremental, epoch {epoch}, {key} classes", theirs, ours


def _permuted(name: str, document: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the order that the paper reads off its figure, by average accuracy where most is
    stored.
    """
    size = max(document["settings"]["stored"])
    ours = {
        method.removesuffix(f"-{size}"): [seed["average_accuracy"] for seed in item["seeds"]]
        for method, item in document["methods"].items()
    }
    for better, worse in _PERMUTED:
        if {better, worse} <= ours.keys():
            text = f"{_upper(better)} better than {_upper(worse)}, permuted MNIST"
            here = _ALL * paired_interval(ours[better], ours[worse])[0]
            claim = Claim(text, name, None, here, _interval(ours, better, worse), better, worse)
            yield replace(claim, reason=_reason(claim, document))


def _upper(method: str) -> str:
    """Return how a method of permuted MNIST is written."""
    return method.upper() if method in ("mlp", "ewc") else method_name(method)


def _right(condition: Mapping[str, Any], key: str, epoch: int | None = None) -> list[float]:
    """Return each seed's share of right answers, at the end or after an epoch; none where that was
    not measured.
    """
    points = condition["seeds"]
    if epoch is not None:
        points = [point for seed in points for point in seed["curve"] if point["at"] == epoch]
    shares = [point[key] for point in points]
    return shares if len(shares) == len(condition["seeds"]) and None not in shares else []
