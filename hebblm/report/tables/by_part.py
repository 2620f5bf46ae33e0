"""Tables by part of a text: by training count, by occurrence of new words, gains on each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.numbers import Cell, Kind
from hebblm.report.result.parts import (
    ALL,
    KNOWN,
    LEAST_BLOCKS,
    OCCURRENCES,
    OOV,
    OOV_BY_OCCURRENCE,
    PIECES,
    FrequencyBucket,
    Gain,
    gap_notes,
    part_label,
    sizes,
)
from hebblm.report.result.schema import MethodResult, StoredResult, count_label, counted_in
from hebblm.report.tables.overall import by_loss, methods_of
from hebblm.report.tables.table import Column, Row, Table
from hebblm.report.tables.units import (
    buckets_by_unit,
    by_unit,
    gain_by_unit,
    gains_by_unit,
    perplexity_of_parts,
    unit,
    unit_of_parts,
)

_BY_RUN_NOTE = (
    "With a union vocabulary every word has a row from the start. With an open one a word gets its "
    "row after it was first observed, and until then a share of <unk>. The words that can occur "
    "are the same in both, so that losses compare; lower and raw case are different texts."
)


def frequency_table(result: StoredResult) -> Table | None:
    """Return perplexity by method and training count, and over all tokens; None if the counts are
    not known.

    The header shows the tokens of each bucket. Every method scored the same stream, so the buckets
    are those of the first one; a method evaluated with other buckets is left out and named in a
    note.
    """
    items = methods_of(result)
    first = items[0][1].frequency
    if not first:
        return None
    rows = []
    alike = []
    different = []
    for name, item in items:
        if sizes(item.frequency) != sizes(first):
            different.append(name_of(name))
            continue
        alike.append((item.frequency, item.nll))
        row: dict[str, Cell] = {"Method": name_of(name)}
        for bucket in buckets_by_unit(result, item.frequency):
            row[bucket.bucket] = bucket.perplexity
        row[ALL] = perplexity_of_parts(result, item)
        rows.append(row)
    notes = gap_notes(alike)
    if different:
        notes.append(f"Evaluated with other buckets: {', '.join(different)}.")
    title = f"Perplexity by frequency in {counted_in(result)} on {result.scenario.label}"
    columns = _by_bucket(
        count_label(result), "perplexity", buckets_by_unit(result, first), unit_of_parts(result)
    )
    return Table("frequency", title, columns, rows, notes)


def occurrence_table(result: StoredResult) -> Table | None:
    """Return the loss on new words by occurrence, nats; None without such words."""
    items = _with_occurrences(result)
    if not items:
        return None
    rows = []
    for name, item in items:
        row: dict[str, Cell] = {"Method": name_of(name)}
        for bucket in buckets_by_unit(result, item.oov_occurrences, f"{OOV} "):
            row[bucket.bucket] = bucket.nll
        row[ALL] = by_unit(result, OOV, result.scenario.oov_tokens, item.oov_nll)
        rows.append(row)
    first = buckets_by_unit(result, items[0][1].oov_occurrences, f"{OOV} ")
    notes = [_learned_note(result)]
    notes += gap_notes((item.oov_occurrences, item.oov_nll) for _, item in items)
    title = f"Nats on new words by occurrence in the stream, {result.scenario.label}"
    columns = _by_bucket("Occurrence", "nll", first, unit_of_parts(result))
    return Table("occurrences", title, columns, rows, notes)


def occurrences_by_run(results: Mapping[str, StoredResult]) -> Table | None:
    """Return the loss on new words by occurrence, nats, a block per run; None if fewer than two
    runs have any.
    """
    rows: list[Row] = []
    headings = []
    for name, result in results.items():
        items = _with_occurrences(result)
        if not items:
            continue
        headings.append(len(rows))
        scenario = result.scenario
        title = f"{name} ({scenario.normalization}, {scenario.vocabulary}), tokens"
        heading: dict[str, Cell] = {"Method": title}
        total = 0
        for bucket in items[0][1].oov_occurrences:
            heading[bucket.bucket] = f"{bucket.tokens:,}"
            total += bucket.tokens
        heading[ALL] = f"{total:,}"
        rows.append(heading)
        for method, item in items:
            row: dict[str, Cell] = {"Method": name_of(method)}
            for bucket in item.oov_occurrences:
                row[bucket.bucket] = bucket.nll
            row[ALL] = item.oov_nll
            rows.append(row)
    if len(headings) < 2:
        return None
    columns = [Column("Occurrence", wide=True, name="Method")]
    for occurrence in (*OCCURRENCES, ALL):
        columns.append(Column(occurrence, "nll", "min", decimals=3))
    title = "Nats on new words by occurrence in the stream, run by run"
    return Table("occurrences-by-run", title, columns, rows, [_BY_RUN_NOTE], headings)


def gain_table(result: StoredResult) -> Table | None:
    """Return every method's gain over the base by training count, with intervals; None without the
    base.
    """
    items = [(name, item) for name, item in methods_of(result) if item.gains]
    if not items:
        return None
    # Known words are nearly all of them, and occurrences have a table of their own.
    parts = []
    for gain in items[0][1].gains:
        if gain.part not in (KNOWN, PIECES) and gain.part not in OOV_BY_OCCURRENCE:
            parts.append(gain.part)
    counted = any(part != ALL for part in parts)
    if counted:
        of = unit_of_parts(result)
        head = count_label(result)
        by = f" by frequency in {counted_in(result)}"
    else:
        of = unit(result)
        head = "Method"
        by = ""
    by_method = {name: gains_by_unit(result, name, of) for name, _ in items}
    first = by_method[items[0][0]]
    columns = [Column(head, subheader=f"{of}s", name="Method")]
    for part in parts:
        columns.append(_gain_column(part, first[part].tokens))
    rows = []
    for name, _ in items:
        row: dict[str, Cell] = {"Method": name_of(name)}
        for part in parts:
            if part in by_method[name]:
                row[part] = by_method[name][part].interval
        rows.append(row)
    title = f"Gain over the base{by} on {result.scenario.label}, nats a {of}"
    config = result.bootstrap
    note = (
        f"Loss of the base minus that of the method; ± half of the {100 * config.level:g} % "
        f"interval, * where it leaves out 0: {config.resamples:,} resamples of blocks of "
        f"{config.block} {of}s; parts in fewer than {LEAST_BLOCKS} blocks have none."
    )
    return Table("gains", title, columns, rows, [note])


def paired_table(result: StoredResult) -> Table | None:
    """What every method gains over each worse one, with intervals; None where the file does not
    say.
    """
    pairs = []
    for first, second in combinations(by_loss(result), 2):
        if BASE not in (first, second) and result.gain(first, second):
            pairs.append((first, second))
    if not pairs:
        return None
    first, second = pairs[0]
    paired = result.extra["paired"]
    names = paired.get(first, {}).get(second) or paired[second][first]
    parts = [name for name in names if name not in (KNOWN, PIECES)]
    of = unit(result)
    if len(parts) > 1:
        of = unit_of_parts(result)
    columns = [Column("First, over second", subheader=f"{of}s", name="Methods")]
    for part in parts:
        gain = _gain_over(result, first, second, part, of)
        assert gain is not None, "the parts are those of the first pair"
        columns.append(_gain_column(part, gain.tokens))
    rows = []
    for first, second in pairs:
        row: dict[str, Cell] = {"Methods": f"{name_of(first)}, over {name_of(second)}"}
        for part in parts:
            gain = _gain_over(result, first, second, part, of)
            if gain is not None:
                row[part] = gain.interval
        rows.append(row)
    title = f"Gains of methods over each other, nats a {of}"
    note = "Loss of the second minus that of the first; ± and * as for gains over the base."
    return Table("paired", title, columns, rows, [note])


def gain_rows(result: StoredResult) -> Table:
    """Return every gain of every part, including new words by occurrence, one per row, for
    programs.
    """
    of = "token"
    if result.of_pieces:
        of = "word"
    columns = [
        Column("Method"),
        Column("Part"),
        Column(f"{of.capitalize()}s", "count", name="Tokens"),
        Column("Gain", "signed"),
        Column("Low", "signed"),
        Column("High", "signed"),
    ]
    rows: list[Row] = []
    for name, item in methods_of(result):
        for gain in item.gains:
            rows.append(
                {
                    "Method": name_of(name),
                    "Part": gain.part,
                    "Tokens": gain.tokens,
                    "Gain": gain.gain,
                    "Low": gain.low,
                    "High": gain.high,
                }
            )
    return Table("gains", f"Gain over the base, nats a {of}", columns, rows)


def _by_bucket(
    header: str, kind: Kind, buckets: Sequence[FrequencyBucket], of: str
) -> list[Column]:
    """Columns of a table by bucket, the whole text last, the number of units in the header."""
    columns = [Column(header, subheader=f"{of}s", name="Method")]
    total = 0
    for bucket in buckets:
        columns.append(Column(bucket.bucket, kind, "min", bucket.tokens, 3))
        total += bucket.tokens
    columns.append(Column(ALL, kind, "min", total, 3))
    return columns


def _gain_column(part: str, units: int) -> Column:
    return Column(part_label(part), "tested", subheader=units, decimals=3, name=part)


def _with_occurrences(result: StoredResult) -> list[tuple[str, MethodResult]]:
    return [(name, item) for name, item in methods_of(result) if item.oov_occurrences]


def _gain_over(result: StoredResult, method: str, other: str, part: str, of: str) -> Gain | None:
    """Return a method's gain over another on a part, by the unit of the table."""
    gain = None
    if part == ALL and of == "piece":
        gain = result.gain(method, other, PIECES)
    if gain is None:
        gain = result.gain(method, other, part)
    if gain is None or of == "word":
        return gain
    return gain_by_unit(result, gain)


def _learned_note(result: StoredResult) -> str:
    every = result.scenario.extra.get("update_every")
    learned = f"every {every} tokens"
    if every is None:
        learned = "at the next update"
    elif every == 1:
        learned = "at once"
    return (
        "Occurrences so far are counted before a token is scored; what was scored is learned "
        f"{learned}."
    )
