"""The numbers that the paper prints on text, and tables of results next to them.

``paper.json`` in this folder holds Table "lm" (perplexity, or nats per token) and Table "frequency"
(test perplexity by training count), with the tokens of the whole stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hebblm.report.render.result import Result
from hebblm.report.result.methods import BASE, name_of, ordered
from hebblm.report.result.numbers import Cell, Kind, difference
from hebblm.report.result.parts import ALL
from hebblm.report.result.schema import ScenarioRecord
from hebblm.report.tables.table import Column, Table
from hebblm.vision.paper import SOURCE

_PRINTED: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text("utf-8"))
_Losses = Mapping[str, float]
_METHOD = Column("Method")
_GAIN_NOTE = (
    "Gain: loss of the base minus loss of the method, each within its own column, in nats per "
    "token."
)


@dataclass(frozen=True, slots=True)
class Published:
    """Numbers that the paper prints for one scenario."""

    source: str  # corpus of the base model
    target: str  # corpus that is scored
    split: str  # of the target
    tokens: int  # of the whole stream, one end-of-sentence mark a line
    perplexity: dict[str, float] = field(default_factory=dict)  # by method, within one domain
    nll: dict[str, float] = field(default_factory=dict)  # by method, across domains, nats per token
    # By method, across domains, nats per token on words outside the vocabulary.
    oov_nll: dict[str, float] = field(default_factory=dict)
    # share of the tokens outside the vocabulary, as its section "Online Adaptation" states it
    oov_rate: float = 0.0
    # By method and bucket (``All`` included), perplexity.
    frequency: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader must know before comparing


_LANGUAGE = [
    Published(**{**entry, "notes": tuple(entry.get("notes", ()))}) for entry in _PRINTED["language"]
]


def published(scenario: ScenarioRecord) -> Published | None:
    """Return the paper's numbers for a scenario with notes on how it differs, or None where it has
    none.
    """
    wanted = (scenario.source, scenario.target, scenario.split)
    found = next((p for p in _LANGUAGE if (p.source, p.target, p.split) == wanted), None)
    if found is None:
        return None
    notes = found.notes
    if scenario.tokens != found.tokens:
        part = (
            f"This run scored {scenario.tokens:,} of {found.tokens:,} tokens; the paper scored all "
            "of them."
        )
        notes = (part, *notes)
    if found.oov_rate:
        theirs, ours = 100 * found.oov_rate, 100 * scenario.oov_rate
        rate = f"In the paper {theirs:.2f} % of the tokens are new words, in this run {ours:.2f} %."
        notes = (*notes, rate)
    return replace(found, notes=notes)


def base_perplexity(source: str) -> float | None:
    """Return the perplexity of the paper's base model on its own validation text, None for another
    corpus.
    """
    found = (p for p in _LANGUAGE if p.source == p.target == source and p.split == "valid")
    return next((p.perplexity["lstm"] for p in found), None)


def paper_tables(result: Result) -> list[Table]:
    """Return our numbers next to those of the paper, for the scenarios that the paper has."""
    printed = published(result.scenario)
    if printed is None:
        return []
    tables = [_beside_losses(result, printed)]
    if printed.frequency:
        tables.append(_beside_frequency(result, printed))
    return tables


def _beside_losses(result: Result, printed: Published) -> Table:
    """Return losses next to the paper's, and what each method gains: within a domain as perplexity,
    else in nats.
    """
    nll = {method: item.nll for method, item in result.methods.items()}
    oov = {
        method: item.oov_nll for method, item in result.methods.items() if item.oov_nll is not None
    }
    # Header, kind and the paper's decimals; what is shown and the losses it comes from, the paper's
    # and ours.
    parts: list[tuple[str, Kind, int, tuple[_Losses, _Losses], tuple[_Losses, _Losses]]] = [
        ("Nats", "nll", 2, (printed.nll, nll), (printed.nll, nll)),
        ("Nats, new words", "nll", 2, (printed.oov_nll, oov), (printed.oov_nll, oov)),
    ]
    if printed.perplexity:
        theirs = {method: math.log(value) for method, value in printed.perplexity.items()}
        ours = {method: item.perplexity for method, item in result.methods.items()}
        parts = [("Perplexity", "perplexity", 3, (printed.perplexity, ours), (theirs, nll))]
    columns = [_METHOD]
    methods = ordered([*(printed.perplexity or printed.nll), *result.methods])
    rows: list[list[Cell]] = [[name_of(method)] for method in methods]
    for header, kind, decimals, shown, losses in parts:
        gain = "Gain, new words" if header.endswith("new words") else "Gain"
        sources = (("paper", decimals), ("here", 3))
        columns += [Column(header, kind, "min", source, places) for source, places in sources]
        columns += [Column(gain, "signed", "max", source, places) for source, places in sources]
        for method, row in zip(methods, rows, strict=True):
            row += [values.get(method) for values in shown]
            row += [_gain(values, method) for values in losses]
    return _beside("paper", result, columns, rows, (_GAIN_NOTE, *printed.notes))


def _beside_frequency(result: Result, printed: Published) -> Table:
    """Return perplexity by training count next to the paper's, for the methods that the paper
    lists.
    """
    buckets = list(next(iter(printed.frequency.values())))
    columns = [_METHOD, Column("Source"), *(Column(bucket, "perplexity") for bucket in buckets)]
    rows: list[list[Cell]] = []
    for method, values in printed.frequency.items():
        rows.append([name_of(method), "paper", *(values[bucket] for bucket in buckets)])
        if method in result.methods:
            item = result.methods[method]
            ours = {bucket.bucket: bucket.perplexity for bucket in item.frequency} | {
                ALL: item.perplexity
            }
            rows.append([name_of(method), "here", *(ours.get(bucket) for bucket in buckets)])
    return _beside("paper-frequency", result, columns, rows, printed.notes)


def _beside(
    name: str,
    result: Result,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    notes: Sequence[str],
) -> Table:
    what = "Perplexity by training count" if name.endswith("frequency") else "Results"
    title = f"{what} on {result.scenario.label} next to the paper"
    return Table.of_cells(
        name, title, tuple(columns), tuple(map(tuple, rows)), (*notes, f"Paper: {SOURCE}.")
    )


def _gain(losses: Mapping[str, float], method: str) -> float | None:
    """Return how many nats a method lies below the unadapted model; None for that model itself."""
    return None if method == BASE else difference(losses.get(BASE), losses.get(method))
