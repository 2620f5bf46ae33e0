"""Tables of the methods on the whole text: all of them, the short answer, several runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hebblm.report.result.methods import BASE, name_of, ordered
from hebblm.report.result.numbers import Cell, Interval
from hebblm.report.result.parts import ALL, KNOWN, OOV, PIECES, Gain
from hebblm.report.result.schema import MethodResult, StoredResult, counted_in
from hebblm.report.tables.table import Column, Row, Table
from hebblm.report.tables.units import by_unit, unit, unit_of_parts

METHOD = Column("Method")
BEST = " ◄"  # after the best method's name: a console may have no bold letters
WITHIN = (Column("Perplexity", "perplexity", "min", name="perplexity"),)
OF_PIECES = (Column("Perplexity a piece", "perplexity", "min", name="piece_perplexity"),)
ACROSS = (
    Column("Nats", "nll", "min", name="nll"),
    Column("Nats, new words", "nll", "min", name="oov_nll"),
)
BITS = Column("Bits/byte", "nll", "min", name="bits_per_byte")


def by_loss(result: StoredResult) -> list[str]:
    """Methods, the lowest loss first; those that are equal in the project's order."""
    return sorted(ordered(result.methods), key=lambda name: result.methods[name].loss)


def methods_of(result: StoredResult) -> list[tuple[str, MethodResult]]:
    """Methods of a result with their numbers, in the project's order."""
    return [(method, result.methods[method]) for method in ordered(result.methods)]


def gain_of(result: StoredResult, method: str) -> Gain | None:
    """Return a method's gain over the base on all tokens; None without the base, for it, or for an
    infinite loss.

    An older result has no intervals: its gain is the difference of the losses.
    """
    if method == BASE or BASE not in result.methods:
        return None
    part = PIECES if result.of_pieces else ALL
    known = result.gain(method, part=part)
    if known is not None and known.gain is not None:
        return known
    difference = result.methods[BASE].loss - result.methods[method].loss
    if not math.isfinite(difference):
        return None
    return Gain(part, result.scenario.tokens, difference, None, None)


def numbers_of(result: StoredResult, method: str) -> dict[str, Cell]:
    """Return the numbers of a method on the whole text, by the names of the columns that show
    them.
    """
    item = result.methods[method]
    words = result.scenario.tokens
    new = result.scenario.oov_tokens
    gain = gain_of(result, method)
    numbers: dict[str, Cell] = {
        "Method": name_of(method),
        "perplexity": item.perplexity,
        "nats": item.loss,
        "gain": None,
        "bits": item.bits_per_byte,
        "words": item.words_perplexity,
        "new": by_unit(result, OOV, new, item.oov_nll),
        "known": by_unit(result, KNOWN, words - new, item.in_vocabulary_nll),
        "speed": item.tokens_per_second,
        "rose": _rose(item),
    }
    if item.piece_perplexity is not None:
        numbers["perplexity"] = item.piece_perplexity
    if gain is not None:
        numbers["gain"] = gain.interval
    if _is_plain(item):
        numbers["bits"] = None
        numbers["words"] = None
    if item.words_perplexity == math.inf:
        numbers["words"] = None
    return numbers


def comparison_table(result: StoredResult) -> Table:
    """Every method with its loss overall, on new words and on known words, and its speed, the best
    first.

    A column counts the queries whose neighbours' loss rose, if there are any.
    """
    columns = [METHOD]
    columns += _loss_columns(result)
    if result.scenario.oov_tokens:
        columns += _parts_columns(result)
    columns.append(replace(_speed_column(result), best="max"))
    if any(_rose(item) for item in result.methods.values()):
        columns.append(Column("Queries whose loss rose", "count", name="rose"))
    columns += _with_values(result, _text_columns(result))
    notes = [f"Nats: mean loss a {unit(result)}."]
    if result.scenario.oov_tokens:
        notes[0] += f" New words: those that {counted_in(result)} lacked."
    notes += lost_notes(result)
    notes += fast_notes(result)
    title = f"Methods on {result.scenario.label}, best first"
    return Table("comparison", title, columns, _rows(result, columns), notes)


def summary_table(result: StoredResult) -> Table:
    """Return a table of every method's loss, gain over the base, loss on new words and speed, the
    best first.

    It leaves out columns without values.
    """
    columns = [METHOD]
    columns += _loss_columns(result)
    columns.append(Column("Gain", "interval", decimals=3, name="gain"))
    columns += _text_columns(result)
    columns.append(replace(_parts_columns(result)[0], decimals=3))
    columns.append(_speed_column(result))
    rows = _rows(result, columns)
    for row, name in zip(rows, by_loss(result), strict=True):
        row["Method"] = _short(name)
    if len(rows) > 1:
        rows[0]["Method"] = f"{rows[0]['Method']}{BEST}"
    notes = lost_notes(result)
    notes += _gain_notes(result, [row["gain"] for row in rows])
    if result.of_pieces:
        notes.append("PPL: perplexity a piece; bits a byte compare between models.")
    checked = []
    for name in by_loss(result):
        count = result.methods[name].rose_queries
        if count is not None:
            checked.append(f"{name_of(name)} {count:,}")
    if checked:
        notes.append(f"Queries whose neighbours' loss rose: {', '.join(checked)}.")
        notes += fast_notes(result)
    title = f"Methods on {result.scenario.label}, best first"
    return Table("summary", title, columns, rows, notes).without_empty()


def runs_table(results: Mapping[str, StoredResult], *, bits: bool = False) -> Table:
    """Methods by scenarios: perplexity, and across domains the loss overall and on new words.

    With ``bits`` also bits a byte, which compare between models of different vocabularies.
    """
    methods: list[str] = []
    items: list[MethodResult] = []
    for result in results.values():
        methods += result.methods
        items += result.methods.values()
    measured = bits and any(item.bits_per_byte for item in items)
    windows = {label: result.model.get("context") for label, result in results.items()}
    rows: dict[str, dict[str, Cell]] = {}
    for method in ordered(methods):
        rows[method] = {"Method": name_of(method)}
    columns = [METHOD]
    for label, result in results.items():
        title = label
        if windows[label] is not None and len(set(windows.values())) > 1:
            title = f"{label}, window {windows[label]:,}"
        measures = list(_measures(result))
        if measured:
            measures.append(BITS)
        for measure in measures:
            column = replace(measure, subheader=title, name=f"{measure.key}, {label}")
            columns.append(column)
            for method, row in rows.items():
                row[column.key] = getattr(result.methods.get(method), measure.key, None)
    notes = _comparable_notes(list(results.values()))
    return Table("scenarios", "Methods by scenario", columns, list(rows.values()), notes)


def _comparable_notes(results: Sequence[StoredResult]) -> list[str]:
    """Return a note on what does not compare between runs."""
    if len({result.text for result in results}) > 1:
        return ["The runs are of different texts or lengths: losses compare within a run alone."]
    if len({(result.scenario.source, result.scored) for result in results}) > 1:
        return ["The models differ, and so may their tokens: between runs compare bits a byte."]
    return []


def lost_notes(result: StoredResult) -> list[str]:
    """Return a note if the tokenizer loses text, which bits a byte do not count."""
    extra = result.scenario.extra
    if not extra.get("lost_bytes"):
        return []
    share = 100 * extra["lost_bytes"] / extra.get("lost_of", extra.get("bytes"))
    return [
        f"The tokenizer loses at least {share:.3g} % of the text's bytes, so bits a byte are too "
        "low. Do not compare them with those of another model."
    ]


def fast_notes(result: StoredResult) -> list[str]:
    """Return a note on the measured error of MbPA's fast form, the largest of any method."""
    errors = []
    for item in result.methods.values():
        if "fast_error" in item.extra:
            errors.append(item.extra["fast_error"])
    if not errors:
        return []
    worst = max(errors, key=lambda error: float(error["mean"]))
    return [
        f"MbPA's fast form against its exact one on {worst['queries']:,} queries, one in a "
        f"thousand: {worst['mean']:.5f} nats a token on average, {worst['max']:.4f} at most."
    ]


def _rows(result: StoredResult, columns: Sequence[Column]) -> list[dict[str, Cell]]:
    """Return the values of some columns, a row per method, the lowest loss first."""
    rows = []
    for method in by_loss(result):
        numbers = numbers_of(result, method)
        rows.append({column.key: numbers[column.key] for column in columns})
    return rows


def _with_values(result: StoredResult, columns: Sequence[Column]) -> list[Column]:
    """Return the columns in which any method has a value."""
    rows: Sequence[Row] = _rows(result, columns)
    kept = []
    for column in columns:
        if any(row[column.key] is not None for row in rows):
            kept.append(column)
    return kept


def _loss_columns(result: StoredResult) -> list[Column]:
    """Return perplexity and nats of the predicted units: pieces of words, or words."""
    if result.of_pieces:
        return [
            Column("PPL", "perplexity", "min", "piece", name="perplexity"),
            Column("Nats", "nll", "min", "piece", name="nats"),
        ]
    return [
        Column("Perplexity", "perplexity", "min", name="perplexity"),
        Column("Nats", "nll", "min", name="nats"),
    ]


def _text_columns(result: StoredResult) -> list[Column]:
    """Return measures that do not depend on the tokens: bits a byte and, where tokens are not
    words, per word.
    """
    if result.of_pieces:
        return [Column("Bits", "nll", "min", "byte", decimals=3, name="bits")]
    return [
        Column("Bits/byte", "nll", "min", name="bits"),
        Column("Word perplexity", "perplexity", "min", name="words"),
    ]


def _parts_columns(result: StoredResult) -> list[Column]:
    """Return the columns of losses on new and on known words, by the unit of parts."""
    of = ""
    if result.of_pieces:
        of = unit_of_parts(result)
    return [
        Column("Nats, new words", "nll", "min", of, name="new"),
        Column("Nats, known words", "nll", "min", of, name="known"),
    ]


def _speed_column(result: StoredResult) -> Column:
    """Return the column of tokens or pieces read per second."""
    if result.of_pieces:
        return Column("Pieces/s", "amount", name="speed")
    return Column("Tokens/s", "amount", name="speed")


def _measures(result: StoredResult) -> tuple[Column, ...]:
    """Return the measures that compare scenarios; each is named as the field that has it."""
    if result.of_pieces:
        return OF_PIECES
    if result.scenario.oov_tokens:
        return ACROSS
    return WITHIN


def _gain_notes(result: StoredResult, gains: Sequence[Cell]) -> list[str]:
    """Return a note on the column of gains; nothing without any."""
    known = [gain for gain in gains if isinstance(gain, Interval)]
    if not known:
        return []
    half = ""
    if any(gain.low is not None for gain in known):
        half = f", ± half of the {100 * result.bootstrap.level:g} % interval"
    return [f"Gain: nats a {unit(result)} below the base{half}."]


def _short(method: str) -> str:
    """Return the name of a method for a console."""
    return name_of(method).removesuffix(" (ours)")


def _rose(item: MethodResult) -> int | None:
    """Return the queries whose neighbours' loss rose; None if not checked."""
    if item.rose_queries is None:
        return item.stabilized_queries
    return item.rose_queries


def _is_plain(item: MethodResult) -> bool:
    """Whether tokens are the words of the text, so that perplexity a word would say the same
    again.
    """
    if item.piece_nll is not None:
        return False
    words = item.words_perplexity
    return words is None or math.isclose(words, item.perplexity, rel_tol=1e-9)
