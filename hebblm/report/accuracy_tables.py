"""Tables of suggestions: how good they are, on a whole text and part by part."""

from __future__ import annotations

from collections.abc import Sequence

from hebblm.report.accuracy import MEASURES, Accuracy
from hebblm.report.buckets import ALL, part_label
from hebblm.report.gains import Gain
from hebblm.report.methods import name_of, ordered
from hebblm.report.numbers import display
from hebblm.report.stored import StoredResult
from hebblm.report.table import Cell, Column, Table
from hebblm.report.tables import interval_text
from hebblm.runtime.wording import worded

NOTE = (
    "First: the word is the most probable one. Among five: it is one of the five most probable. "
    "Keys saved: of letters "
    "and blanks, by a list of three words that begin with the letters typed so far."
)
PIECES_NOTE = (
    "The words are evenly spread, and ranked among whole words that a beam finds; after the tenth, "
    "1/rank is 0."
)
UNION_NOTE = (
    "With a union vocabulary new words are listed before they were read. vocabulary=open lists "
    "what a reader would."
)
_DECIMALS = {"reciprocal_rank": 3}  # others are percent, with 1


def accuracy_table(result: StoredResult) -> Table | None:
    """Return a table of every method's suggestions on a text; None if they were not requested."""
    wholes = {}
    for name, parts in _items(result).items():
        for part in parts:
            if part.part == ALL:
                wholes[name] = part
    if not wholes:
        return None
    columns = [Column("Method")]
    for measure, header in MEASURES.items():
        columns.append(Column(header, "nll", "max", decimals=_DECIMALS.get(measure, 1)))
        columns.append(Column("Gain"))
    rows = []
    for name, part in wholes.items():
        rows.append((name_of(name), *_cells(part)))
    asked = next(iter(wholes.values())).tokens
    words = "1 word" if asked == 1 else f"{asked:,} words"
    title = f"Suggestions on {result.scenario.label}, {words}"
    level = (
        "Gains are over the base, of percentages in points, "
        f"± half of the {100 * result.bootstrap.level:g} % interval, * where it leaves out 0."
    )
    notes = (NOTE, PIECES_NOTE, level) if result.of_pieces else (NOTE, level)
    return Table("accuracy", title, tuple(columns), tuple(rows), notes)


def suggested_table(result: StoredResult) -> Table | None:
    """Return suggestions before and after reading for words that gained much; None if they were not
    requested.
    """
    found = result.extra.get("suggested") or {}
    if not found.get("words"):
        return None
    columns = (
        Column("After the words", wide=True),
        Column("The text has"),
        Column("Before reading, %", wide=True),
        Column("After reading, %", wide=True),
    )
    rows = []
    for question in found["words"]:
        unread, read = _listed(question["unread"]), _listed(question["read"])
        rows.append((question["before"], question["word"], unread, read))
    return Table(
        "suggested",
        f"Suggestions before and after reading, {name_of(found['method'])}",
        columns,
        tuple(rows),
    )


def _listed(words: Sequence[tuple[str, float]]) -> str:
    """Return words with their probabilities in percent."""
    return " · ".join(
        f"{word if word.strip() else '⏎'} {display(100 * share, 'percent')}"
        for word, share in words
    )


def accuracy_by_part(result: StoredResult, measure: str) -> Table | None:
    """Return one measure by training count and by occurrence of new words; None without
    suggestions.
    """
    items = _items(result)
    if not items:
        return None
    shown = [part for part in next(iter(items.values())) if part.tokens]
    columns = [Column("Part", subheader="words")]
    columns += [Column(part_label(part.part), "nll", "max", part.tokens, 1) for part in shown]
    rows = []
    for name, parts in items.items():
        row: list[Cell] = [name_of(name)]
        row += [_scaled(part, measure) for part in parts if part.tokens]
        rows.append(tuple(row))
    title = f"{MEASURES[measure]}: by part of {result.scenario.label}"
    union = (
        result.scenario.oov_tokens
        and result.scenario.vocabulary == "union"
        and not result.of_pieces
    )
    return Table(
        f"accuracy-{measure}",
        title,
        tuple(columns),
        tuple(rows),
        (worded(UNION_NOTE),) if union else (),
    )


def accuracy_rows(result: StoredResult) -> Table | None:
    """Return every measure of every part with its gain over the base, one per row, for programs."""
    columns = (
        Column("Method"),
        Column("Part"),
        Column("Words", "count"),
        Column("Measure"),
        Column("Value", "nll"),
        Column("Gain", "nll"),
        Column("Low", "nll"),
        Column("High", "nll"),
    )
    rows = []
    for name, parts in _items(result).items():
        for part in parts:
            for measure in MEASURES:
                gain, low, high = part.gains.get(measure, (None, None, None))
                value = getattr(part, measure)
                rows.append(
                    (name_of(name), part.part, part.tokens, measure, value, gain, low, high)
                )
    if not rows:
        return None
    return Table("accuracy", "Suggestions", columns, tuple(rows))


def _items(result: StoredResult) -> dict[str, tuple[Accuracy, ...]]:
    items = {}
    for name in ordered(result.methods):
        accuracy = result.methods[name].accuracy
        if accuracy:
            items[name] = accuracy
    return items


def _cells(part: Accuracy) -> list[Cell]:
    cells: list[Cell] = []
    for measure in MEASURES:
        gain, low, high = part.gains.get(measure, (None, None, None))
        in_percent = Gain(
            part.part,
            part.tokens,
            _percent(measure, gain),
            _percent(measure, low),
            _percent(measure, high),
        )
        cells.append(_scaled(part, measure))
        cells.append(interval_text(in_percent, "*", _DECIMALS.get(measure, 1)))
    return cells


def _scaled(part: Accuracy, measure: str) -> float | None:
    return _percent(measure, getattr(part, measure))


def _percent(measure: str, value: float | None) -> float | None:
    """Return a share in percent; a mean of 1/rank stays as it is."""
    return value if value is None or measure == "reciprocal_rank" else 100 * value
