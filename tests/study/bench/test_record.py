from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hebblm.errors import UserError
from recipes.bench.record import SCHEMA, BenchResult, Row

from .rows import adapt_row, result, retrieve_row


def test_a_file_holds_everything_and_comes_back(tmp_path: Path) -> None:
    made = result(
        adapt_row(10_000, 1, naive=20.0, fast=0.4), retrieve_row(1000, exact=3.0, index=0.1)
    )
    path = tmp_path / "bench.json"
    made.save(path)
    document = json.loads(path.read_text())
    assert document["schema"] == SCHEMA == "hebblm-bench/1"
    assert document["complete"] is True
    row = document["rows"][0]
    assert list(row) == ["name", "case", "ratios", "values", "timings"]
    assert row["ratios"]["fast_mbpa"] == {
        "to": "naive_mbpa",
        "median": pytest.approx(50.0),
        "min": pytest.approx(50.0),
        "max": pytest.approx(50.0),
    }
    raw = row["timings"]["naive_mbpa"]
    assert len(raw["seconds"]) == len(raw["tokens"]) == 5
    assert raw["ms_per_token"] == {
        "median": pytest.approx(20.0),
        "min": pytest.approx(18.0),
        "max": pytest.approx(24.0),
    }
    assert BenchResult.load(path) == made
    # as version 0.2.0 counted them
    row["floors"] = {"fast_mbpa": {"ms_per_token": 0.1, "phases": {}}}
    path.write_text(json.dumps(document))
    assert BenchResult.load(path).rows[0].floors == {"fast_mbpa": 0.1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"schema": "hebblm-result/1"}, "is no measurement of costs"),
        ([1], "is no measurement of costs"),
        ({"schema": SCHEMA, "kind": "adapt"}, "lacks parts"),
        (
            {
                "schema": SCHEMA,
                "kind": "adapt",
                "provenance": {},
                "settings": {},
                "complete": True,
                "rows": [{}],
            },
            "lacks",
        ),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=words):
        BenchResult.load(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(UserError, match=f"error_mean is {value}"):
        Row("adapt", {}, values={"error_mean": value})
