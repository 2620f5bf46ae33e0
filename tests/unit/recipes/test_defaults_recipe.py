from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "recipes" / "defaults.py"


def tuned(path: Path, target: str, losses: dict[float, float]) -> Path:
    document: dict[str, Any] = {
        "model": {"arch": "awd_lstm"},
        "scenario": {"source": "wt2", "target": target, "tokens": 5},
        "provenance": {"command": "hebblm-tune"},
        "tried": {"mbpa": [{"mbpa.lr": lr, "mbpa.steps": 5, "nll": nll} for lr, nll in losses.items()]},
    }
    path.write_text(json.dumps(document))
    return path


def test_the_point_that_is_best_over_the_texts_and_what_it_loses(tmp_path: Path) -> None:
    first = tuned(tmp_path / "a.json", "wt2", {4.0: 3.0, 8.0: 3.1, 16.0: 3.4})
    second = tuned(tmp_path / "b.json", "ptb", {4.0: 5.0, 8.0: 4.6, 32.0: 1.0})
    other = tuned(tmp_path / "c.json", "numpy", {4.0: 2.0, 8.0: 2.25})
    output = tmp_path / "defaults.json"
    command = [sys.executable, SCRIPT, first, second, "--transfer", other, "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads(output.read_text())
    assert found["values"] == {"mbpa.lr": 8.0, "mbpa.steps": 5}
    assert found["chosen_on"]["wt2"]["mbpa"]["lost"] == pytest.approx(0.1)
    assert found["chosen_on"]["wt2-to-ptb"]["mbpa"] == {"default": 4.6, "tuned": 1.0, "lost": pytest.approx(3.6)}
    assert found["transfer"]["wt2-to-numpy"]["mbpa"]["lost"] == pytest.approx(0.25)


def test_the_shipped_point_of_the_later_of_two_files_for_a_text(tmp_path: Path) -> None:
    first = tuned(tmp_path / "a.json", "wt2", {4.0: 3.0, 8.0: 3.1})
    later = tuned(tmp_path / "b.json", "wt2", {4.0: 3.5, 8.0: 3.75})
    for path in (first, later):
        path.write_text(path.read_text().replace('"mbpa.steps": 5', '"mbpa.steps": 3'))
    output = tmp_path / "defaults.json"
    command = [sys.executable, SCRIPT, first, later, "--shipped", "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads(output.read_text())
    assert found["values"] == {"mbpa.lr": 8.0, "mbpa.steps": 3}
    assert found["chosen_on"]["wt2"]["mbpa"] == {"default": 3.75, "tuned": 3.5, "lost": 0.25}
