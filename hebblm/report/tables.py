"""The tables that a researcher came for, built from results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hebblm.report import frequency, paper
from hebblm.report.methods import BASE, name_of, ordered
from hebblm.report.result import MethodResult, Result
from hebblm.report.table import Cell, Column, Table, without_empty_columns

_ALL = "All"
_MISTIMED = ("hebb-learned", "mixture+hebb-learned")
"""Methods that were charged too little before results noted where the time went."""
_MISTIMED_NOTE = (
    "No speed for {}: when this was measured, MbPA's work, which they rest on, was charged to MbPA alone, so that "
    "their tokens a second compare with no other's."
)
_GAIN_NOTE = "Gain: loss of the LSTM minus loss of the method, each within its own column, in nats per token."


def comparison_table(result: Result) -> Table:
    """Return every method with its loss overall, on new words and on known words, and its speed."""
    columns = [
        Column("Method"),
        Column("Perplexity", "perplexity", "min"),
        Column("Nats", "nll", "min"),
        Column("OOV nats", "nll", "min"),
        Column("Known nats", "nll", "min"),
        Column("Tokens/s", "rate", "max"),
        Column("Loss rose", "count"),
    ]
    further = [Column("Word perplexity", "perplexity", "min"), Column("Bits/byte", "nll", "min")]
    rows: list[list[Cell]] = []
    extra: list[list[Cell]] = []
    mistimed = [name for name in _MISTIMED if name in result.methods and speed(result, name) is None]
    for method, item in _ordered_items(result.methods):
        rows.append(
            [
                name_of(method),
                item.perplexity,
                item.nll,
                item.oov_nll,
                item.in_vocabulary_nll,
                speed(result, method),
                item.stabilized_queries if item.rose_queries is None else item.rose_queries,
            ]
        )
        words = word_perplexity(item)
        extra.append([words, None if words is None else item.bits_per_byte])
    extra_columns, extra_rows = without_empty_columns(further, extra)
    return Table(
        name="comparison",
        title=f"Methods on {result.scenario.label}",
        columns=(*columns, *extra_columns),
        rows=tuple((*row, *more) for row, more in zip(rows, extra_rows, strict=True)),
        notes=(
            *((_MISTIMED_NOTE.format(", ".join(map(name_of, mistimed))),) if mistimed else ()),
            *_fast_notes(result),
        ),
    )


def speed(result: Result, method: str) -> float | None:
    """Return how many tokens a second a method reads; None where that was not measured rightly."""
    if method in _MISTIMED and result.seconds is None:
        return None
    return result.methods[method].tokens_per_second


def word_perplexity(item: MethodResult) -> float | None:
    """Return the perplexity per word; None where tokens are words, and a table would say it twice."""
    words = item.words_perplexity
    return None if words is None or math.isclose(words, item.perplexity, rel_tol=1e-9) else words


def _fast_notes(result: Result) -> tuple[str, ...]:
    """Return what the fast form of MbPA was measured to cost, the most of any method."""
    found = [item.extra["fast_error"] for item in result.methods.values() if "fast_error" in item.extra]
    if not found:
        return ()
    worst = max(found, key=lambda error: float(error["mean"]))
    return (
        f"MbPA's fast form against its exact one on {worst['queries']:,} queries, one in a thousand: "
        f"{worst['mean']:.5f} nats a token on average, {worst['max']:.4f} at most.",
    )


def frequency_table(result: Result) -> Table:
    """Return perplexity by method and training count, and over all tokens; tokens a bucket in the header.

    Every method scored the same stream, so the buckets are those of the first one; a method evaluated with
    other buckets is left out and named in a note.
    """
    items = _ordered_items(result.methods)
    shape = [(bucket.bucket, bucket.tokens) for bucket in items[0][1].frequency]
    alike = [(method, item) for method, item in items if _shape(item) == shape]
    different = [name_of(method) for method, item in items if _shape(item) != shape]
    total = sum(tokens for _, tokens in shape)
    columns = [Column("Training count", subheader="tokens")]
    columns += [Column(label, "perplexity", "min", tokens) for label, tokens in shape]
    columns += [Column(_ALL, "perplexity", "min", total)]
    rows = [
        (name_of(method), *(bucket.perplexity for bucket in item.frequency), item.perplexity)
        for method, item in alike
    ]
    notes = [_recombination_note([item for _, item in alike])]
    if different:
        notes.append(f"Evaluated with other buckets: {', '.join(different)}.")
    return Table(
        "frequency",
        f"Perplexity by training count on {result.scenario.label}",
        tuple(columns),
        tuple(rows),
        tuple(notes),
    )


def paper_tables(result: Result) -> list[Table]:
    """Return our numbers beside those of the paper, for the scenarios that the paper has."""
    printed = paper.published(result.scenario)
    if printed is None:
        return []
    tables = [_beside_perplexity(result, printed) if printed.perplexity else _beside_nll(result, printed)]
    if printed.frequency:
        tables.append(_beside_frequency(result, printed))
    return tables


def side_by_side(results: Mapping[str, Result]) -> Table:
    """Return methods by scenarios: perplexity, and across domains the loss overall and on new words.

    Args:
        results: by label; the labels head the columns.
    """
    methods = ordered(method for result in results.values() for method in result.methods)
    columns = [Column("Method")]
    rows: list[list[Cell]] = [[name_of(method)] for method in methods]
    for label, result in results.items():
        across = result.scenario.oov_tokens > 0
        columns.append(
            Column("Nats", "nll", "min", label)
            if across
            else Column("Perplexity", "perplexity", "min", label)
        )
        if across:
            columns.append(Column("OOV nats", "nll", "min", label))
        for method, row in zip(methods, rows, strict=True):
            item = result.methods.get(method)
            row.append(None if item is None else item.nll if across else item.perplexity)
            if across:
                row.append(None if item is None else item.oov_nll)
    return Table("scenarios", "Methods by scenario", tuple(columns), tuple(tuple(row) for row in rows))


def _ordered_items(methods: Mapping[str, MethodResult]) -> list[tuple[str, MethodResult]]:
    """Return the methods in the project's order."""
    return [(method, methods[method]) for method in ordered(methods)]


def _shape(item: MethodResult) -> list[tuple[str, int]]:
    """Return the buckets of a method without their losses."""
    return [(bucket.bucket, bucket.tokens) for bucket in item.frequency]


def _recombination_note(items: Sequence[MethodResult]) -> str:
    """State how exactly the buckets give back the loss over all tokens."""
    gaps = [
        abs(total - item.nll) for item in items if (total := frequency.recombine(item.frequency)) is not None
    ]
    finite = [gap for gap in gaps if gap < float("inf")]
    largest = f"{max(finite):.1e} nats" if finite else "undefined, for want of a finite loss"
    return f"Token-weighted, the buckets recombine to All; largest difference: {largest}."


def _beside_perplexity(result: Result, printed: paper.Published) -> Table:
    """Return perplexity within one domain beside the paper's, and what each method gains over the LSTM."""
    columns = (
        Column("Method"),
        Column("Perplexity", "perplexity", "min", "paper"),
        Column("Perplexity", "perplexity", "min", "here"),
        Column("Gain", "signed", "max", "paper", 3),
        Column("Gain", "signed", "max", "here", 3),
    )
    paper_nll = {method: math.log(value) for method, value in printed.perplexity.items()}
    ours = {method: item.nll for method, item in result.methods.items()}
    rows = tuple(
        (
            name_of(method),
            printed.perplexity.get(method),
            result.methods[method].perplexity if method in result.methods else None,
            _gain(paper_nll, method),
            _gain(ours, method),
        )
        for method in ordered([*printed.perplexity, *result.methods])
    )
    return _beside("paper", result, columns, rows, (_GAIN_NOTE, *printed.notes))


def _beside_nll(result: Result, printed: paper.Published) -> Table:
    """Return cross-entropy across domains beside the paper's, overall and on new words."""
    parts = (
        ("Nats", printed.nll, {method: item.nll for method, item in result.methods.items()}),
        (
            "OOV nats",
            printed.oov_nll,
            {method: item.oov_nll for method, item in result.methods.items() if item.oov_nll is not None},
        ),
    )
    columns = [Column("Method")]
    methods = ordered([*printed.nll, *result.methods])
    rows: list[list[Cell]] = [[name_of(method)] for method in methods]
    for header, theirs, ours in parts:
        gain = "Gain" if header == "Nats" else "OOV gain"
        columns += [Column(header, "nll", "min", "paper", 2), Column(header, "nll", "min", "here", 3)]
        columns += [Column(gain, "signed", "max", "paper", 2), Column(gain, "signed", "max", "here", 3)]
        for method, row in zip(methods, rows, strict=True):
            row += [theirs.get(method), ours.get(method), _gain(theirs, method), _gain(ours, method)]
    return _beside(
        "paper", result, tuple(columns), tuple(tuple(row) for row in rows), (_GAIN_NOTE, *printed.notes)
    )


def _beside_frequency(result: Result, printed: paper.Published) -> Table:
    """Return perplexity by training count beside the paper's, for the methods that the paper lists."""
    buckets = list(next(iter(printed.frequency.values())))
    columns = (Column("Method"), Column("Source"), *(Column(bucket, "perplexity") for bucket in buckets))
    rows: list[tuple[Cell, ...]] = []
    for method, values in printed.frequency.items():
        rows.append((name_of(method), "paper", *(values[bucket] for bucket in buckets)))
        if method in result.methods:
            item = result.methods[method]
            ours = {bucket.bucket: bucket.perplexity for bucket in item.frequency} | {_ALL: item.perplexity}
            rows.append((name_of(method), "here", *(ours.get(bucket) for bucket in buckets)))
    return _beside("paper-frequency", result, columns, tuple(rows), printed.notes)


def _beside(
    name: str,
    result: Result,
    columns: tuple[Column, ...],
    rows: tuple[tuple[Cell, ...], ...],
    notes: tuple[str, ...],
) -> Table:
    """Return a table that stands beside the paper."""
    what = "Perplexity by training count" if name.endswith("frequency") else "Results"
    title = f"{what} on {result.scenario.label} beside the paper"
    return Table(name, title, columns, rows, (*notes, f"Paper: {paper.SOURCE}."))


def _gain(losses: Mapping[str, float], method: str) -> float | None:
    """Return how many nats a method lies below the unadapted model; None for that model itself."""
    if method == BASE or BASE not in losses or method not in losses:
        return None
    gain = losses[BASE] - losses[method]
    return None if math.isnan(gain) else gain  # two infinite losses have no difference
