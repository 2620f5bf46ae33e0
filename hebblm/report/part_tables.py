"""Tables of where in a stream each method gains: new words by occurrence, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hebblm.report.gains import LEAST_BLOCKS, Gain
from hebblm.report.methods import BASE, name_of, ordered
from hebblm.report.numbers import MISSING, difference, perplexity
from hebblm.report.parts import ALL, KNOWN, OCCURRENCES, OOV_BY_OCCURRENCE, PIECES, gap_notes
from hebblm.report.result import Result, corpus_name
from hebblm.report.table import Cell, Column, Table
from hebblm.report.tables import by_bucket, by_loss, methods_of

_BY_RUN_NOTE = (
    "With a union vocabulary every word has a row from the start. With an open one a word gets its row after it was "
    "first observed, and until then a share of <unk>. The words that can occur are the same in both, so that losses "
    "compare; lower and raw case are different texts."
)

LONGEST = 20  # documents that a report shows


def occurrence_table(result: Result) -> Table | None:
    """Return the loss on out-of-vocabulary words by occurrence, nats; None where there are no such words."""
    items = [(name, item) for name, item in methods_of(result) if item.oov_occurrences]
    if not items:
        return None
    shape = [(bucket.bucket, bucket.tokens) for bucket in items[0][1].oov_occurrences]
    rows = tuple(
        (name_of(name), *(bucket.nll for bucket in item.oov_occurrences), item.oov_nll) for name, item in items
    )
    gaps = gap_notes((item.oov_occurrences, item.oov_nll) for _, item in items)
    title = f"Nats on OOV words by occurrence in the stream, {result.scenario.label}"
    return Table("occurrences", title, by_bucket("Occurrence", "nll", shape), rows, (_learned_note(result), *gaps))


def occurrences_by_run(results: Mapping[str, Result]) -> Table | None:
    """Return the loss on new words by occurrence, nats, a block a run; None where fewer than two runs have any.

    Args:
        results: by name.
    """
    rows: list[tuple[Cell, ...]] = []
    headings = []
    for name, result in results.items():
        items = [(method, item) for method, item in methods_of(result) if item.oov_occurrences]
        if not items:
            continue
        headings.append(len(rows))
        counts = [bucket.tokens for bucket in items[0][1].oov_occurrences]
        title = f"{name} ({result.scenario.normalization}, {result.scenario.vocabulary}), tokens"
        rows.append((title, *(f"{count:,}" for count in (*counts, sum(counts)))))
        rows += [
            (name_of(method), *(bucket.nll for bucket in item.oov_occurrences), item.oov_nll) for method, item in items
        ]
    if len(headings) < 2:
        return None
    return Table(
        "occurrences-by-run",
        "Nats on OOV words by occurrence in the stream, run by run",
        (
            Column("Occurrence", wide=True),
            *(Column(name, "nll", "min", decimals=3) for name in (*OCCURRENCES, ALL)),
        ),
        tuple(rows),
        (_BY_RUN_NOTE,),
        tuple(headings),
    )


def gain_table(result: Result) -> Table | None:
    """Return what every method gains over the base by training count, with intervals; None without the base."""
    items = [(name, item) for name, item in methods_of(result) if item.gains]
    if not items:
        return None
    # Known words are nearly all of them, and occurrences have a table of their own.
    left_out = (KNOWN, PIECES, *OOV_BY_OCCURRENCE)
    shown = [gain for gain in items[0][1].gains if gain.part not in left_out]
    counted = any(gain.part != ALL for gain in shown)
    columns = (
        Column("Training count" if counted else "Method", subheader="tokens"),
        *(Column(gain.part, "signed", subheader=gain.tokens) for gain in shown),
    )
    rows = []
    for name, item in items:
        found = {gain.part: interval_text(gain, mark="*") for gain in item.gains}
        rows.append((name_of(name), *(found.get(gain.part) for gain in shown)))
    by = " by training count" if counted else ""
    title = f"Gain over the base{by} on {result.scenario.label}, nats per token"
    return Table("gains", title, columns, tuple(rows), (_interval_note(result),))


def gain_rows(result: Result) -> Table:
    """Return every gain of every part, OOV words by occurrence among them, one a row, as a program reads it."""
    columns = (
        Column("Method"),
        Column("Part"),
        Column("Tokens", "count"),
        Column("Gain", "signed"),
        Column("Low", "signed"),
        Column("High", "signed"),
    )
    rows = tuple(
        (name_of(name), gain.part, gain.tokens, gain.gain, gain.low, gain.high)
        for name in ordered(result.methods)
        for gain in result.methods[name].gains
    )
    return Table("gains", "Gain over the base, nats per token", columns, rows)


def document_table(result: Result, most: int | None = LONGEST) -> Table | None:
    """Return what each document costs, the worst first; None where the text is a single one.

    Args:
        result: of the run.
        most: documents to show, None for all.
    """
    documents = result.extra.get("documents")
    if not documents:
        return None
    names = by_loss(result)
    best = names[0]
    names = list(dict.fromkeys([*names[:2], *(name for name in names if name == BASE)]))
    pieces = "pieces" in documents[0]
    loss, unit, count = ("piece_nll", "piece", "pieces") if pieces else ("nll", "token", "tokens")
    worst = sorted(documents, key=lambda document: -document[loss][best])
    columns = [Column("Document", wide=True), Column(count.capitalize(), "count")]
    columns += [Column(name_of(name), "perplexity", "min", f"perplexity a {unit}") for name in names]
    measured = all("bits_per_byte" in document for document in documents)
    if measured:
        columns += [Column(name_of(name), "nll", "min", "bits a byte", 3) for name in names]
    rows = [
        (
            document["name"],
            document[count],
            *(perplexity(document[loss][name]) for name in names),
            *(document["bits_per_byte"][name] for name in names if measured),
        )
        for document in worst[:most]
    ]
    shown = f"the {most} worst of {len(documents):,}" if most and len(documents) > most else "the worst first"
    notes = []
    if most and len(documents) > most:
        notes.append("All documents stand in result.json; --by-document lists them.")
    return Table("documents", f"Perplexity by document, {shown}", tuple(columns), tuple(rows), tuple(notes))


def forgetting_table(result: Result) -> Table | None:
    """Return perplexity on the source domain's text before and after; None where that was not asked for."""
    found = [(name, item.forgetting) for name, item in methods_of(result) if item.forgetting is not None]
    if not found:
        return None
    columns = [Column("Method"), Column("Before", "perplexity", "min")]
    for header, gap in (("After", "Forgotten (nats)"), ("Memory kept", "Forgotten (nats), memory kept")):
        columns += [Column(header, "perplexity", "min"), Column(gap, "signed", "min", decimals=3)]
    rows = []
    for name, losses in found:
        row: list[Cell] = [name_of(name), perplexity(losses.before)]
        for loss in (losses.after, losses.memory_kept):
            row += [None, None] if loss is None else [perplexity(loss), difference(loss, losses.before)]
        rows.append(tuple(row))
    text = result.extra.get("forgetting", {})
    source = corpus_name(text.get("corpus", result.scenario.source))
    return Table(
        "forgetting",
        f"Perplexity on {source} before and after {result.scenario.label}",
        tuple(columns),
        tuple(rows),
        (_forgetting_note(text),),
    )


def _forgetting_note(text: Mapping[str, Any]) -> str:
    """Say what was scored, and what stays of the stream."""
    which = f"{text['tokens']:,} tokens of {corpus_name(text['corpus'])} {text['split']}, " if text else ""
    return (
        f"{which}read without learning from them. After: the base as the stream left it, with a memory emptied of the "
        "stream or one that keeps it. What a query adapts is thrown away: a base that stays as trained forgets nothing."
    )


def interval_text(gain: Gain, mark: str = "") -> str:
    """Return a gain with half the width of its interval.

    Args:
        gain: of any part.
        mark: written behind an interval that leaves out 0.
    """
    if gain.gain is None:
        return MISSING
    text = f"{gain.gain:+.3f}"
    if gain.low is None or gain.high is None:
        return text
    half = f"{(gain.high - gain.low) / 2:.3f}"
    return f"{text} ±{half.removeprefix('0') if half.startswith('0.') else half}{mark if gain.certain else ''}"


def _interval_note(result: Result) -> str:
    """Say what the signs mean and how the intervals were found."""
    config = result.bootstrap
    return (
        f"Loss of the base minus that of the method; ± half of the {100 * config.level:g} % interval, * where it "
        f"leaves out 0: {config.resamples:,} resamples of blocks of {config.block} tokens; parts in fewer than "
        f"{LEAST_BLOCKS} blocks have none."
    )


def _learned_note(result: Result) -> str:
    """Say from when on an occurrence can help."""
    every = result.scenario.extra.get("update_every")
    learned = "at the next update" if every is None else "at once" if every == 1 else f"every {every} tokens"
    return f"Occurrences so far are counted before a token is scored; what was scored is learned {learned}."
