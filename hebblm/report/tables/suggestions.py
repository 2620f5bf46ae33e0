"""Tables of suggestions: how good they are, on a whole text and part by part."""

from __future__ import annotations

from collections.abc import Sequence

from hebblm.report.result.accuracy import MEASURES, Accuracy
from hebblm.report.result.methods import name_of
from hebblm.report.result.numbers import Cell, Interval, display
from hebblm.report.result.parts import ALL, part_label
from hebblm.report.result.schema import StoredResult
from hebblm.report.tables.overall import methods_of
from hebblm.report.tables.table import Column, Row, Table
from hebblm.runtime.wording import worded

NOTE = (
    "First: the word is the most probable one. Among five: it is one of the five most probable. "
    "Keys saved: of letters and spaces, by a list of three words that begin with the letters typed "
    "so far."
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
    rows = []
    asked = 0
    for name, parts in _items(result).items():
        for part in parts:
            if part.part != ALL:
                continue
            asked = asked or part.tokens
            row: dict[str, Cell] = {"Method": name_of(name)}
            for measure in MEASURES:
                row[measure] = _percent(measure, getattr(part, measure))
                row[f"{measure} gain"] = _gain(measure, part)
            rows.append(row)
    if not rows:
        return None
    columns = [Column("Method")]
    for measure, header in MEASURES.items():
        decimals = _DECIMALS.get(measure, 1)
        columns.append(Column(header, "nll", "max", decimals=decimals, name=measure))
        columns.append(Column("Gain", "tested", decimals=decimals, name=f"{measure} gain"))
    words = "1 word" if asked == 1 else f"{asked:,} words"
    title = f"Suggestions on {result.scenario.label}, {words}"
    notes = [NOTE]
    if result.of_pieces:
        notes.append(PIECES_NOTE)
    notes.append(
        "Gains are over the base, of percentages in points, "
        f"± half of the {100 * result.bootstrap.level:g} % interval, * where it leaves out 0."
    )
    return Table("accuracy", title, columns, rows, notes)


def accuracy_by_part(result: StoredResult, measure: str) -> Table | None:
    """Return one measure by training count and by occurrence of new words; None without
    suggestions.
    """
    items = _items(result)
    if not items:
        return None
    columns = [Column("Part", subheader="words", name="Method")]
    for part in next(iter(items.values())):
        if part.tokens:
            head = part_label(part.part)
            columns.append(Column(head, "nll", "max", part.tokens, 1, name=part.part))
    rows = []
    for name, parts in items.items():
        row: dict[str, Cell] = {"Method": name_of(name)}
        for part in parts:
            if part.tokens:
                row[part.part] = _percent(measure, getattr(part, measure))
        rows.append(row)
    scenario = result.scenario
    notes = []
    if scenario.oov_tokens and scenario.vocabulary == "union" and not result.of_pieces:
        notes.append(worded(UNION_NOTE))
    title = f"{MEASURES[measure]}: by part of {scenario.label}"
    return Table(f"accuracy-{measure}", title, columns, rows, notes)


def accuracy_rows(result: StoredResult) -> Table | None:
    """Return every measure of every part with its gain over the base, one per row, for programs."""
    rows: list[Row] = []
    for name, parts in _items(result).items():
        for part in parts:
            for measure in MEASURES:
                gain, low, high = part.gains.get(measure, (None, None, None))
                rows.append(
                    {
                        "Method": name_of(name),
                        "Part": part.part,
                        "Words": part.tokens,
                        "Measure": measure,
                        "Value": getattr(part, measure),
                        "Gain": gain,
                        "Low": low,
                        "High": high,
                    }
                )
    if not rows:
        return None
    columns = [
        Column("Method"),
        Column("Part"),
        Column("Words", "count"),
        Column("Measure"),
        Column("Value", "nll"),
        Column("Gain", "nll"),
        Column("Low", "nll"),
        Column("High", "nll"),
    ]
    return Table("accuracy", "Suggestions", columns, rows)


def suggested_table(result: StoredResult) -> Table | None:
    """Return suggestions before and after reading for words that gained much; None if they were not
    requested.
    """
    suggested = result.extra.get("suggested") or {}
    if not suggested.get("words"):
        return None
    columns = [
        Column("After the words", wide=True),
        Column("The text has"),
        Column("Before reading, %", wide=True),
        Column("After reading, %", wide=True),
    ]
    rows: list[Row] = []
    for question in suggested["words"]:
        rows.append(
            {
                "After the words": question["before"],
                "The text has": question["word"],
                "Before reading, %": _listed(question["unread"]),
                "After reading, %": _listed(question["read"]),
            }
        )
    title = f"Suggestions before and after reading, {name_of(suggested['method'])}"
    return Table("suggested", title, columns, rows)


def _listed(words: Sequence[tuple[str, float]]) -> str:
    """Return words with their probabilities in percent."""
    listed = []
    for word, share in words:
        shown = word if word.strip() else "⏎"
        listed.append(f"{shown} {display(100 * share, 'percent')}")
    return " · ".join(listed)


def _items(result: StoredResult) -> dict[str, tuple[Accuracy, ...]]:
    return {name: item.accuracy for name, item in methods_of(result) if item.accuracy}


def _gain(measure: str, part: Accuracy) -> Interval:
    gain, low, high = part.gains.get(measure, (None, None, None))
    return Interval(_percent(measure, gain), _percent(measure, low), _percent(measure, high))


def _percent(measure: str, value: float | None) -> float | None:
    """Return a share in percent; a mean of 1/rank stays as it is."""
    if value is None or measure == "reciprocal_rank":
        return value
    return 100 * value
