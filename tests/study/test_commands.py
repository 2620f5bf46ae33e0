"""The commands of ``recipes.study``: what they refuse, and the goals as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.study.command import main

from .bench.rows import adapt_row, result


def test_goals_are_written_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(adapt_row(10_000, 1, naive=20.0, fast=0.4)).save(tmp_path / "bench.json")
    assert (
        main(["cost", str(tmp_path / "bench.json"), "--output-path", str(tmp_path / "goals.md")])
        == 0
    )
    text = (tmp_path / "goals.md").read_text()
    assert "| Goal | Measured: median (extremes) | Met |" in text
    assert main(["cost", str(tmp_path / "bench.json")]) == 0
    assert capsys.readouterr().out.rstrip() == text.rstrip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["unknown subcommand", "book, cost, paper, readings"]),
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
