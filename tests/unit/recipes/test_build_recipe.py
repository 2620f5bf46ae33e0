"""The recipe that times the building of a memory notes what was built."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recipes.scale.build import main


def test_a_build_is_timed_as_a_whole_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 80 of them to train on
    (tmp_path / "text.txt").write_text("The function returns a list .\n" * 100)
    arguments = ["--model", "tiny-pydoc-raw", "--corpus", f"text:{tmp_path / 'text.txt'}"]
    settings = ["--set", "memory.store=disk", "memory.index=IVF4,SQ8"]
    monkeypatch.setattr(
        sys, "argv", ["build", *arguments, *settings, "--json", str(tmp_path / "build.json")]
    )
    assert main() == 0
    document = json.loads((tmp_path / "build.json").read_text())
    [row] = document["rows"]
    assert row["entries"] == 80 * 7
    assert row["index"] == "IVF4,SQ8"
    assert {"keys.bin", "lists.bin"} < set(row["bytes"])
    assert row["bytes"]["values.bin"] == 8 * row["entries"]
    assert min(row["seconds"], row["resident_bytes"]) > 0
    assert {"commit", "cpu", "threads"} < set(document["provenance"])
