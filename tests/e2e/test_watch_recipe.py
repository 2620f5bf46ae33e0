"""The recipe that measures a watching reader and kills it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hebblm.io.files import read_json
from recipes import watch


@pytest.mark.slow
def test_a_watching_reader_is_timed_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "watch.json"
    monkeypatch.setattr(watch, "RUNS", 1)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "watch",
            "tiny-pydoc-raw",
            "--kills",
            "1",
            "--characters",
            "2000",
            "--output",
            str(output),
        ],
    )
    assert watch.main() == 0
    found = read_json(output)["models"]["tiny-pydoc-raw"]
    assert found["kills"] == found["survived"] == 1
    assert 0 < found["answer"] <= found["slowest answer"]
    assert found["fastest start"] <= found["start"]
