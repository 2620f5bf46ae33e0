"""The command that installs an extra."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hebblm.runtime.extras import install


def test_the_command_installs_into_the_python_that_runs(tmp_path: Path) -> None:
    command, _, where = install("serve").partition(" in ")
    assert where == "the checkout"
    python, *arguments = shlex.split(command)
    assert arguments == ["-m", "pip", "install", "-e", ".[serve]"]
    asked = subprocess.run(
        [str(Path.cwd() / python), "-c", "import sys; print(sys.prefix)"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout.strip() == sys.prefix


def test_a_python_below_the_present_folder_is_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert install("hf") == ".venv/bin/python -m pip install -e '.[hf]' in the checkout"
