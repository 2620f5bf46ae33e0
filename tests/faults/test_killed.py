"""Two commands killed with -9 and run again; ``make faults`` tries each command a hundred times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hebblm.cli.vision import main as vision

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.faults
@pytest.mark.parametrize("name", ["eval", "memory build on disk"])
def test_a_command_that_is_killed_ends_with_the_same_files(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.killed", name, str(tmp_path / "world"), "6"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout)
    assert (found["tried"], found["survived"], found["found"]) == (6, 6, [])
    assert found["resumed"] > 0


def test_a_bad_request_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "vision" / "online"
    asked = ["online", "--scale", "smoke", "--seeds", "1", "--set", "old_classes=10", "--device", "cpu"]
    assert vision([*asked, "--output-path", str(folder)]) == 2
    assert "10 pre-training classes leave no new one" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
