"""Two commands killed with -9 and run again; ``make faults`` tries each command a hundred times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
