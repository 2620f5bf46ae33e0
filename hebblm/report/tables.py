"""Tables of a result: methods, training counts, new words, gains with their intervals, documents,
forgetting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from hebblm.report.buckets import (
    ALL,
    KNOWN,
    OCCURRENCES,
    OOV,
    OOV_BY_OCCURRENCE,
    PIECES,
    gap_notes,
    part_label,
)
from hebblm.report.gains import LEAST_BLOCKS, Gain
from hebblm.report.methods import BASE, name_of, ordered
from hebblm.report.numbers import MISSING, Kind
from hebblm.report.stored import MethodResult, StoredResult, count_label, counted_in
from hebblm.report.table import Cell, Column, Table
from hebblm.report.units import (
    buckets_by_unit,
    by_unit,
    gain_by_unit,
    gains_by_unit,
    perplexity_of_parts,
    unit,
    unit_of_parts,
)

Item = tuple[str, MethodResult]
Said = tuple[Column, Callable[[str, MethodResult], Cell]]
_METHOD = Column("Method")
_WITHIN: tuple[tuple[str, Kind, str], ...] = (("Perplexity", "perplexity", "perplexity"),)
_PIECES: tuple[tuple[str, Kind, str], ...] = (
    ("Perplexity a piece", "perplexity", "piece_perplexity"),
)
_ACROSS: tuple[tuple[str, Kind, str], ...] = (
    ("Nats", "nll", "nll"),
    ("Nats, new words", "nll", "oov_nll"),
)


def method_table(
    name: str, title: str, items: Sequence[Item], columns: Sequence[Said], notes: Sequence[str] = ()
) -> Table:
    """Return a table with a row per method: its name, and its value in each column."""
    headers = [_METHOD]
    for column, _ in columns:
        headers.append(column)
    rows = []
    for method, item in items:
        row: list[Cell] = [name_of(method)]
        for _, value_of in columns:
            row.append(value_of(method, item))
        rows.append(tuple(row))
    return Table(name, title, tuple(headers), tuple(rows), tuple(notes))


def with_values(items: Sequence[Item], columns: Sequence[Said]) -> list[Said]:
    """Return the columns in which any method has a value."""
    return [
        (column, value_of)
        for column, value_of in columns
        if any(value_of(*item) is not None for item in items)
    ]


def comparison_table(result: StoredResult) -> Table:
    """Every method with its loss overall, on new words and on known words, and its speed, the best
    first.

    A column counts the queries whose neighbours' loss rose, if there are any.
    """
    items = [(name, result.methods[name]) for name in by_loss(result)]
    columns = loss_columns(result)
    if result.scenario.oov_tokens:
        columns += [new_words_column(result), known_words_column(result)]
    columns.append(speed_column(result, "max"))
    if any(map(_rose, result.methods.values())):
        columns.append((Column("Queries whose loss rose", "count"), lambda _, item: _rose(item)))
    columns += with_values(items, text_columns(result))
    title = f"Methods on {result.scenario.label}, best first"
    units = f"Nats: mean loss a {unit(result)}."
    if result.scenario.oov_tokens:
        units += f" New words: those that {counted_in(result)} lacked."
    return method_table(
        "comparison", title, items, columns, (units, *lost_notes(result), *fast_notes(result))
    )


def loss_columns(result: StoredResult) -> list[Said]:
    """Return perplexity and nats of the predicted units: pieces of words, or words."""
    header, unit = "Perplexity", ""
    if result.of_pieces:
        header, unit = "PPL", "piece"

    def of_unit(_: str, item: MethodResult) -> float:
        if item.piece_perplexity is None:
            return item.perplexity
        return item.piece_perplexity

    return [
        (Column(header, "perplexity", "min", unit), of_unit),
        (Column("Nats", "nll", "min", unit), lambda _, item: item.loss),
    ]


def text_columns(result: StoredResult) -> list[Said]:
    """Return measures that do not depend on the tokens: bits a byte and, where tokens are not
    words, per word.
    """
    if result.of_pieces:
        column = Column("Bits", "nll", "min", "byte", decimals=3)
        return [(column, lambda _, item: item.bits_per_byte)]

    def bits_per_byte(_: str, item: MethodResult) -> float | None:
        if _is_plain(item):
            return None
        return item.bits_per_byte

    def per_word(_: str, item: MethodResult) -> float | None:
        if _is_plain(item) or item.words_perplexity == math.inf:
            return None
        return item.words_perplexity

    return [
        (Column("Bits/byte", "nll", "min"), bits_per_byte),
        (Column("Word perplexity", "perplexity", "min"), per_word),
    ]


def new_words_column(result: StoredResult) -> Said:
    """Return the column of losses on new words, by the unit of parts."""
    words = result.scenario.oov_tokens
    of = unit_of_parts(result) if result.of_pieces else ""

    def loss(_: str, item: MethodResult) -> float | None:
        return by_unit(result, OOV, words, item.oov_nll)

    return Column("Nats, new words", "nll", "min", of), loss


def known_words_column(result: StoredResult) -> Said:
    """Return the column of losses on the other words, by the unit of parts."""
    words = result.scenario.tokens - result.scenario.oov_tokens
    of = unit_of_parts(result) if result.of_pieces else ""

    def loss(_: str, item: MethodResult) -> float | None:
        return by_unit(result, KNOWN, words, item.in_vocabulary_nll)

    return Column("Nats, known words", "nll", "min", of), loss


def speed_column(result: StoredResult, best: Literal["max"] | None = None) -> Said:
    """Return the column of tokens or pieces read per second."""
    header = "Pieces/s" if result.of_pieces else "Tokens/s"
    return Column(header, "amount", best), lambda _, item: item.tokens_per_second


def lost_notes(result: StoredResult) -> list[str]:
    """Return a note if the tokenizer loses text, which bits a byte do not count."""
    extra = result.scenario.extra
    if not extra.get("lost_bytes"):
        return []
    share = 100 * extra["lost_bytes"] / extra["lost_of" if "lost_of" in extra else "bytes"]
    return [
        f"The tokenizer loses at least {share:.3g} % of the text's bytes, so bits a byte are too "
        "low. "
        "Do not compare them with those of another model."
    ]


def _rose(item: MethodResult) -> int | None:
    """Return the queries whose neighbours' loss rose; None if not checked."""
    return item.stabilized_queries if item.rose_queries is None else item.rose_queries


def _is_plain(item: MethodResult) -> bool:
    """Whether tokens are the words of the text, so that perplexity a word would say the same
    again.
    """
    words = item.words_perplexity
    return item.piece_nll is None and (
        words is None or math.isclose(words, item.perplexity, rel_tol=1e-9)
    )


def fast_notes(result: StoredResult) -> tuple[str, ...]:
    """Return a note on the measured error of MbPA's fast form, the largest of any method."""
    errors = [
        item.extra["fast_error"] for item in result.methods.values() if "fast_error" in item.extra
    ]
    if not errors:
        return ()
    worst = max(errors, key=lambda error: float(error["mean"]))
    return (
        f"MbPA's fast form against its exact one on {worst['queries']:,} queries, one in a "
        "thousand: "
        f"{worst['mean']:.5f} nats a token on average, {worst['max']:.4f} at most.",
    )


def frequency_table(result: StoredResult) -> Table | None:
    """Return perplexity by method and training count, and over all tokens; None if the counts are
    not known.

    The header shows the tokens of each bucket. Every method scored the same stream, so the buckets
    are those of the first one; a method evaluated with other buckets is left out and named in a
    note.
    """
    items = methods_of(result)
    shape = _shape(items[0][1])
    if not shape:
        return None
    alike = [(method, item) for method, item in items if _shape(item) == shape]
    different = [name_of(method) for method, item in items if _shape(item) != shape]
    rows = []
    for name, item in alike:
        row: list[Cell] = [name_of(name)]
        for bucket in buckets_by_unit(result, item.frequency):
            row.append(bucket.perplexity)
        row.append(perplexity_of_parts(result, item))
        rows.append(tuple(row))
    notes = gap_notes((item.frequency, item.nll) for _, item in alike)
    if different:
        notes.append(f"Evaluated with other buckets: {', '.join(different)}.")
    title = f"Perplexity by frequency in {counted_in(result)} on {result.scenario.label}"
    first = buckets_by_unit(result, items[0][1].frequency)
    shape = [(bucket.bucket, bucket.tokens) for bucket in first]
    columns = by_bucket(count_label(result), "perplexity", shape, unit_of_parts(result))
    return Table("frequency", title, columns, tuple(rows), tuple(notes))


def by_bucket(
    first: str, kind: Kind, shape: Sequence[tuple[str, int]], unit: str
) -> tuple[Column, ...]:
    """Columns of a table by bucket, the whole text last, the number of units in the header."""
    columns = [Column(first, subheader=f"{unit}s")]
    for label, tokens in shape:
        columns.append(Column(label, kind, "min", tokens, 3))
    total = sum(tokens for _, tokens in shape)
    columns.append(Column(ALL, kind, "min", total, 3))
    return tuple(columns)


def side_by_side(results: Mapping[str, StoredResult], *, bits: bool = False) -> Table:
    """Methods by scenarios: perplexity, and across domains the loss overall and on new words.

    With ``bits`` also bits a byte, which compare between models of different vocabularies.
    """
    measured = bits and any(
        item.bits_per_byte for result in results.values() for item in result.methods.values()
    )
    methods = ordered(method for result in results.values() for method in result.methods)
    windows = {label: result.model.get("context") for label, result in results.items()}
    columns = [_METHOD]
    rows: dict[str, list[Cell]] = {method: [name_of(method)] for method in methods}
    for label, result in results.items():
        title = label
        if windows[label] is not None and len(set(windows.values())) > 1:
            title = f"{label}, window {windows[label]:,}"
        measures = [*_measures(result)]
        if measured:
            measures.append(("Bits/byte", "nll", "bits_per_byte"))
        for header, kind, field in measures:
            columns.append(Column(header, kind, "min", title))
            for method, row in rows.items():
                row.append(getattr(result.methods.get(method), field, None))
    notes = []
    if len({result.text for result in results.values()}) > 1:
        notes = ["The runs are of different texts or lengths: losses compare within a run alone."]
    elif len({(result.scenario.source, result.scored) for result in results.values()}) > 1:
        notes = ["The models differ, and so may their tokens: between runs compare bits a byte."]
    cells = tuple(tuple(row) for row in rows.values())
    return Table("scenarios", "Methods by scenario", tuple(columns), cells, tuple(notes))


def _measures(result: StoredResult) -> tuple[tuple[str, Kind, str], ...]:
    """Return header, kind and field of the measures that compare scenarios."""
    if result.of_pieces:
        return _PIECES
    if result.scenario.oov_tokens:
        return _ACROSS
    return _WITHIN


def by_loss(result: StoredResult) -> list[str]:
    """Methods, the lowest loss first; those that are equal in the project's order."""
    return sorted(ordered(result.methods), key=lambda name: result.methods[name].loss)


def methods_of(result: StoredResult) -> list[Item]:
    """Methods of a result with their numbers, in the project's order."""
    return [(method, result.methods[method]) for method in ordered(result.methods)]


def _shape(item: MethodResult) -> list[tuple[str, int]]:
    return [(bucket.bucket, bucket.tokens) for bucket in item.frequency]


_BY_RUN_NOTE = (
    "With a union vocabulary every word has a row from the start. With an open one a word gets its "
    "row after it was "
    "first observed, and until then a share of <unk>. The words that can occur are the same in "
    "both, so that losses "
    "compare; lower and raw case are different texts."
)


def occurrence_table(result: StoredResult) -> Table | None:
    """Return the loss on new words by occurrence, nats; None without such words."""
    items = [(name, item) for name, item in methods_of(result) if item.oov_occurrences]
    if not items:
        return None
    words = result.scenario.oov_tokens
    rows = []
    for name, item in items:
        row: list[Cell] = [name_of(name)]
        for bucket in buckets_by_unit(result, item.oov_occurrences, f"{OOV} "):
            row.append(bucket.nll)
        row.append(by_unit(result, OOV, words, item.oov_nll))
        rows.append(tuple(row))
    first = buckets_by_unit(result, items[0][1].oov_occurrences, f"{OOV} ")
    shape = [(bucket.bucket, bucket.tokens) for bucket in first]
    gaps = gap_notes((item.oov_occurrences, item.oov_nll) for _, item in items)
    title = f"Nats on new words by occurrence in the stream, {result.scenario.label}"
    columns = by_bucket("Occurrence", "nll", shape, unit_of_parts(result))
    return Table("occurrences", title, columns, tuple(rows), (_learned_note(result), *gaps))


def occurrences_by_run(results: Mapping[str, StoredResult]) -> Table | None:
    """Return the loss on new words by occurrence, nats, a block per run; None if fewer than two
    runs have any.
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
        for method, item in items:
            row: list[Cell] = [name_of(method)]
            for bucket in item.oov_occurrences:
                row.append(bucket.nll)
            row.append(item.oov_nll)
            rows.append(tuple(row))
    if len(headings) < 2:
        return None
    columns = [Column("Occurrence", wide=True)]
    for occurrence in (*OCCURRENCES, ALL):
        columns.append(Column(occurrence, "nll", "min", decimals=3))
    return Table(
        "occurrences-by-run",
        "Nats on new words by occurrence in the stream, run by run",
        tuple(columns),
        tuple(rows),
        (_BY_RUN_NOTE,),
        tuple(headings),
    )


def gain_table(result: StoredResult) -> Table | None:
    """Return every method's gain over the base by training count, with intervals; None without the
    base.
    """
    items = [(name, item) for name, item in methods_of(result) if item.gains]
    if not items:
        return None
    # Known words are nearly all of them, and occurrences have a table of their own.
    parts = [
        gain.part
        for gain in items[0][1].gains
        if gain.part not in (KNOWN, PIECES, *OOV_BY_OCCURRENCE)
    ]
    counted = any(part != ALL for part in parts)
    of = unit_of_parts(result) if counted else unit(result)
    found = {name: gains_by_unit(result, name, of) for name, _ in items}
    first = found[items[0][0]]
    columns = [Column("Method", subheader=f"{of}s")]
    by = ""
    if counted:
        columns = [Column(count_label(result), subheader=f"{of}s")]
        by = f" by frequency in {counted_in(result)}"
    for part in parts:
        columns.append(Column(part_label(part), "signed", subheader=first[part].tokens))
    rows = []
    for name, _ in items:
        row: list[Cell] = [name_of(name)]
        for part in parts:
            gain = found[name].get(part)
            row.append(None if gain is None else interval_text(gain, mark="*"))
        rows.append(tuple(row))
    title = f"Gain over the base{by} on {result.scenario.label}, nats a {of}"
    config = result.bootstrap
    note = (
        f"Loss of the base minus that of the method; ± half of the {100 * config.level:g} % "
        "interval, * where it "
        f"leaves out 0: {config.resamples:,} resamples of blocks of {config.block} {of}s; parts in "
        "fewer than "
        f"{LEAST_BLOCKS} blocks have none."
    )
    return Table("gains", title, tuple(columns), tuple(rows), (note,))


def paired_table(result: StoredResult) -> Table | None:
    """What every method gains over each worse one, with intervals; None where the file does not
    say.
    """
    pairs = [
        pair for pair in combinations(by_loss(result), 2) if BASE not in pair and result.gain(*pair)
    ]
    if not pairs:
        return None
    first, second = pairs[0]
    paired = result.extra["paired"]
    names = paired.get(first, {}).get(second) or paired[second][first]
    parts = [name for name in names if name not in (KNOWN, PIECES)]
    of = unit_of_parts(result) if len(parts) > 1 else unit(result)

    def gain_of(pair: tuple[str, str], part: str) -> Gain | None:
        gain = None
        if part == ALL and of == "piece":
            gain = result.gain(*pair, part=PIECES)
        if gain is None:
            gain = result.gain(*pair, part=part)
        if gain is None or of == "word":
            return gain
        return gain_by_unit(result, gain)

    columns = [Column("First, over second", subheader=f"{of}s")]
    for part in parts:
        gain = gain_of(pairs[0], part)
        assert gain is not None, "the parts are those of the first pair"
        columns.append(Column(part_label(part), "signed", subheader=gain.tokens))
    rows = []
    for pair in pairs:
        row: list[Cell] = [f"{name_of(pair[0])}, over {name_of(pair[1])}"]
        for part in parts:
            gain = gain_of(pair, part)
            row.append(None if gain is None else interval_text(gain, mark="*"))
        rows.append(tuple(row))
    title = f"Gains of methods over each other, nats a {of}"
    note = "Loss of the second minus that of the first; ± and * as for gains over the base."
    return Table("paired", title, tuple(columns), tuple(rows), (note,))


def gain_rows(result: StoredResult) -> Table:
    """Return every gain of every part, including new words by occurrence, one per row, for
    programs.
    """
    columns = (
        Column("Method"),
        Column("Part"),
        Column("Words" if result.of_pieces else "Tokens", "count"),
        Column("Gain", "signed"),
        Column("Low", "signed"),
        Column("High", "signed"),
    )
    rows = tuple(
        (name_of(name), gain.part, gain.tokens, gain.gain, gain.low, gain.high)
        for name in ordered(result.methods)
        for gain in result.methods[name].gains
    )
    of = "word" if result.of_pieces else "token"
    return Table("gains", f"Gain over the base, nats a {of}", columns, rows)


def interval_text(gain: Gain, mark: str = "", decimals: int = 3) -> str:
    """A gain with half the width of its interval."""
    if gain.gain is None:
        return MISSING
    text = f"{gain.gain:+.{decimals}f}"
    if gain.low is None or gain.high is None:
        return text
    half = f"{(gain.high - gain.low) / 2:.{decimals}f}"
    if half.startswith("0."):
        half = half.removeprefix("0")
    return f"{text} ±{half}{mark if gain.certain else ''}"


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
