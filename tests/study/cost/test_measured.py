"""Floors are measured of what recipes.bench measures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from recipes.bench.configs import HEADS
from recipes.study.command import main

ADAPT = [
    "adapt", "--dim", "16", "--vocabulary", "600", "--k", "12", "--batch", "10", "--neighbors", "6", "--steps", "1",
    "5", "--entries", "150", "--heads", "gpt2",
]  # fmt: skip
RETRIEVE = [
    "retrieve", "--dim", "16", "--k", "10", "--batch", "8", "--entries", "300", "--recall-queries", "30",
]  # fmt: skip
EVAL = [
    "eval", "--arch", "awd_lstm_tiny", "--vocabulary", "400", "--k", "10", "--batch", "20", "--memory-sizes", "200",
    "--tokens", "40", "--currency-tokens", "40", "--stream-tokens", "250",
]  # fmt: skip


def run(folder: Path, arguments: list[str], name: str) -> list[dict[str, Any]]:
    """Measure, and return the rows of a name."""
    path = folder / "bench.json"
    assert main(["bench", *arguments, "--device", "cpu", "--threads", "1", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["complete"] is True
    assert document["provenance"]["command"].startswith(f"python -m recipes.study bench {arguments[0]} ")
    return [row for row in document["rows"] if row["name"] == name]


def test_mbpa_and_what_hebb_adds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HEADS, "gpt2", (500, 16))
    rows = run(tmp_path, ADAPT, "adapt")
    assert len(rows) == 2
    for row in rows:
        for name in ("fast_mbpa", "hebbian"):
            floor = row["floors"][name]
            assert 0 < floor["ms_per_token"] < math.inf
            assert all(part >= 0 for part in floor["parts_ms_per_token"].values())
        fast = row["floors"]["fast_mbpa"]["parts_ms_per_token"]
        assert sum(fast.values()) == pytest.approx(row["timings"]["fast_mbpa"]["ms_per_token"]["median"])
        assert fast["matrix products"] > 0
    rest = json.loads((tmp_path / "bench.json").read_text())["rows"][2:]
    assert {row["name"]: list(row.get("floors", {})) for row in rest} == {
        "cache": [],
        "large_head": [],
        "neighbors": [],
        "network": ["dual"],
    }
    assert "times the floor of" in capsys.readouterr().out
    assert main(["cost", str(tmp_path / "bench.json")]) == 0
    assert "| MbPA, V = 600, S = 5, d = 16 |" in capsys.readouterr().out


def test_a_search_of_all_entries(tmp_path: Path) -> None:
    (row,) = run(tmp_path, RETRIEVE, "retrieve")
    floor = row["floors"]["index"]
    assert floor["phases"]["retrieval"]["work"]["gathered"] == 10 * 16 * 4
    assert list(floor["parts_ms_per_token"]) == ["comparing with every entry", "copying the neighbours"]


def test_a_search_by_codes(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    (row,) = run(tmp_path, [*RETRIEVE, "--index", "IVF8,PQ4x4fs"], "retrieve")
    floor = row["floors"]["index"]
    assert list(floor["parts_ms_per_token"]) == [
        "comparing codes",
        "exact distances of the candidates",
        "copying the neighbours",
    ]
    assert floor["phases"]["retrieval"]["work"]["gathered"] == 50 * 16 * 4


def test_a_whole_evaluation(tmp_path: Path) -> None:
    (row,) = run(tmp_path, EVAL, "evaluation")
    floor = row["floors"]["all"]
    assert list(floor["phases"]) == list(floor["parts_ms_per_token"]) == ["base", "retrieval", "methods"]
    parts = sum(floor["parts_ms_per_token"].values())
    assert parts == pytest.approx(row["timings"]["all"]["ms_per_token"]["median"])
    assert main(["cost", str(tmp_path / "bench.json"), "--output-path", str(tmp_path / "goals.md")]) == 0
    text = (tmp_path / "goals.md").read_text()
    assert "| Goal | Measured: median (extremes) | Met |" in text
    assert "| whole evaluation, 200 entries, V = 400 |" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["unknown subcommand", "book, cost, bench, paper, readings"]),
        (["bench"], ["no floors are known of ''", "adapt, retrieve, eval"]),
        (["bench", "train"], ["'train'"]),
        (["bench", "adapt", "--k", "0"], ["k = 0"]),
        (["cost", "no-such.json"], ["no-such.json does not exist"]),
        (["book"], ["results"]),
        (["book", "absent"], ["absent"]),
    ],
)
def test_mistakes_end_with_status_2_and_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("python -m recipes.study: error: ")
    assert all(word in last for word in words), last


def test_help_names_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "{book,cost,bench,paper,readings}" in capsys.readouterr().out
