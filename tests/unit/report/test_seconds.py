from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hebblm.errors import UserError
from hebblm.report import Result, write_report
from hebblm.report.result.record import read
from hebblm.report.result.schema import METHOD, RUN, SHARED, Part, Seconds
from hebblm.report.tables.facts import time_line, time_table

from .samples import sample_result

OLD = [
    path
    for path in sorted((Path(__file__).parents[3] / "recipes" / "results").glob("**/result.json"))
    if json.loads(path.read_text(encoding="utf-8"))["schema"] == "hebblm-result/1"
]
PARTS = (
    Part(RUN, "base", 20.0),
    Part(SHARED, "mbpa", 50.0),
    Part(METHOD, "hebb", 9.99),
    Part(RUN, "slight", 0.01),
)
SECONDS = Seconds(100.0, PARTS)


def test_a_result_keeps_where_its_time_went(tmp_path: Path) -> None:
    result = replace(sample_result(300), seconds=SECONDS)
    result.save(tmp_path)
    assert Result.load(tmp_path) == result
    assert json.loads((tmp_path / "result.json").read_text())["seconds"]["parts"][0] == {
        "kind": "run", "name": "base", "seconds": 20.0,
    }  # fmt: skip


def test_parts_and_rest_make_up_the_run() -> None:
    rows = time_table(SECONDS).cells()
    assert [row[0] for row in rows] == ["mbpa, shared", "base", "Hebb, own", "rest", "all"]
    assert [row[2] for row in rows] == pytest.approx([50, 20, 9.99, 20.01, 100])
    assert time_line(SECONDS) == "100.0 seconds: mbpa, shared 50 %; base 20 %; Hebb, own 10 %"


def test_a_line_names_no_part_that_rounds_to_nothing() -> None:
    little = Part(SHARED, "mbpa", 0.4)
    assert (
        time_line(Seconds(100.0, (Part(RUN, "base", 90.0), little))) == "100.0 seconds: base 90 %"
    )
    assert time_line(Seconds(100.0, (little,))) == "100.0 seconds"


def test_the_report_shows_where_the_time_goes(tmp_path: Path) -> None:
    for seconds in (SECONDS, None):
        write_report(replace(sample_result(300), seconds=seconds), tmp_path, formats=("md",))
        assert ("Where the time goes" in (tmp_path / "report.md").read_text()) == (
            seconds is not None
        )


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings, by section at any depth, under the names that they have today."""
    today = {"pull": "l2_to_base", "closeness": "kernel_weight"}
    return {
        today.get(key, key): renamed(value) if isinstance(value, dict) else value
        for key, value in values.items()
    }


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.parent.name)
def test_results_of_earlier_versions_are_read(path: Path) -> None:
    value, expected = (json.loads(path.read_text(encoding="utf-8")) for _ in range(2))
    for item in expected["methods"].values():
        item["hyperparameters"] = renamed(item["hyperparameters"])
    assert Result.from_json(value).to_json() == expected


def test_an_unknown_kind_is_refused() -> None:
    part = {"kind": "other", "name": "x", "seconds": 1.0}
    with pytest.raises(UserError, match="'other'"):
        read(Seconds, {"total": 1.0, "parts": [part]}, "seconds")
