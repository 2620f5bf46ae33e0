from __future__ import annotations

import io

import pytest
from rich.console import Console

from hebblm.report.render.document import print_summary
from hebblm.report.render.table import fitting, groups_that_fit, print_table, texts
from hebblm.report.result.methods import name_of
from hebblm.report.tables.by_part import gain_table
from hebblm.report.tables.table import Column, Table

from .samples import sample_result


def printed(table: Table, width: int) -> list[str]:
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width, color_system=None))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("widths", "width", "expected"),
    [
        ([5, 4, 4], 20, [[0, 1, 2]]),
        ([5, 4, 4], 18, [[0, 1], [0, 2]]),
        ([5, 4, 9, 2, 2], 21, [[0, 1], [0, 2], [0, 3, 4]]),
        ([30, 40], 20, [[0, 1]]),
        ([5], 20, [[0]]),
    ],
)
def test_every_column_stands_once_and_the_first_in_every_part(
    widths: list[int], width: int, expected: list[list[int]]
) -> None:
    assert groups_that_fit(widths, width) == expected


def test_a_table_that_fits_is_left_whole() -> None:
    table = gain_table(sample_result(400))
    assert table is not None
    assert fitting(table, 500) == [table]
    assert all(len(line) <= 300 for line in printed(table, 300))


@pytest.mark.parametrize("width", [60, 100])
def test_no_name_and_no_number_is_broken_on_a_narrow_console(width: int) -> None:
    result = sample_result(3000)
    table = gain_table(result)
    assert table is not None
    lines = printed(table, width)
    assert all(len(line.rstrip()) <= width for line in lines)
    text = "\n".join(lines)
    for row in texts(table):
        for cell in row:
            assert cell in text
    stream = io.StringIO()
    print_summary(result, Console(file=stream, width=width, color_system=None))
    for method in result.methods:
        assert f"\n {name_of(method)} " in stream.getvalue()


def test_a_title_is_as_wide_as_the_console_and_not_as_its_table() -> None:
    table = Table.of_cells(
        "t",
        "A title of several words",
        (Column("A"), Column("B")),
        (("x", "y"),),
        ("A long note.",),
    )
    assert printed(table, 80)[0] == "A title of several words"
    assert printed(table, 80)[-1] == "A long note."


def test_sentences_are_broken_between_words() -> None:
    columns = (Column("Claim"), Column("Margin", "signed"), Column("Why", wide=True))
    table = Table.of_cells(
        "t",
        "A title",
        columns,
        (("Hebb first", 0.5, "much is lost on frequent words here"),),
        ("Note.",),
    )
    lines = printed(table, 34)
    assert sum("Hebb first" in line for line in lines) == 1
    assert sum("Note." in line for line in lines) == 1
    assert all(len(line.rstrip()) <= 34 for line in lines)
