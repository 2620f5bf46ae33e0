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
    rows = [
        (name, part) for name, parts in _items(result).items() for part in parts if part.part == ALL
    ]
    if not rows:
        return None
    columns = [Column("Method")]
    for measure, header in MEASURES.items():
        columns += [
            Column(header, "nll", "max", decimals=_DECIMALS.get(measure, 1)),
            Column("Gain"),
        ]
    asked = rows[0][1].tokens
    words = "1 word" if asked == 1 else f"{asked:,} words"
    title = f"Suggestions on {result.scenario.label}, {words}"
    level = (
        "Gains are over the base, of percentages in points, "
        f"± half of the {100 * result.bootstrap.level:g} % interval, * where it leaves out 0."
    )
    notes = (NOTE, PIECES_NOTE, level) if result.of_pieces else (NOTE, level)
    return Table(
        "accuracy",
        title,
        tuple(columns),
        tuple((name_of(name), *_cells(part)) for name, part in rows),
        notes,
    )


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
    rows = tuple(
        (each["before"], each["word"], *(_listed(each[when]) for when in ("unread", "read")))
        for each in found["words"]
    )
    return Table(
        "suggested",
        f"Suggestions before and after reading, {name_of(found['method'])}",
        columns,
        rows,
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
    rows = [
        (name_of(name), *(_scaled(part, measure) for part in parts if part.tokens))
        for name, parts in items.items()
    ]
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
        *(Column(header) for header in ("Method", "Part")),
        Column("Words", "count"),
        Column("Measure"),
        *(Column(header, "nll") for header in ("Value", "Gain", "Low", "High")),
    )
    rows = tuple(
        (
            name_of(name),
            part.part,
            part.tokens,
            measure,
            getattr(part, measure),
            *part.gains.get(measure, (None,) * 3),
        )
        for name, parts in _items(result).items()
        for part in parts
        for measure in MEASURES
    )
    return Table("accuracy", "Suggestions", columns, rows) if rows else None


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
        gain = Gain(
            part.part,
            part.tokens,
            *(_percent(measure, x) for x in part.gains.get(measure, (None,) * 3)),
        )
        cells += [_scaled(part, measure), interval_text(gain, "*", _DECIMALS.get(measure, 1))]
    return cells


def _scaled(part: Accuracy, measure: str) -> float | None:
    return _percent(measure, getattr(part, measure))


def _percent(measure: str, value: float | None) -> float | None:
    """Return a share in percent; a mean of 1/rank stays as it is."""
    return value if value is None or measure == "reciprocal_rank" else 100 * value
