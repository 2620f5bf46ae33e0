"""The Dockerfile stays short, and names what is there: extras, options, a model, a user."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from .test_pages import ROOT, try_command

LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
KNOWN = ("FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD")


def line(word: str) -> str:
    """Return what follows the only line that begins with a word."""
    [found] = [each for each in LINES if each.startswith(f"{word} ")]
    return found.removeprefix(f"{word} ")


def test_it_has_ten_instructions_that_docker_knows() -> None:
    assert len(LINES) == 10
    assert [each.split()[0] for each in LINES] == [*dict.fromkeys(KNOWN)]


def test_it_installs_extras_that_there_are_for_a_python_that_fits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(r"\.\[([\w,-]+)\]", line("RUN"))
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert "serve" in extras[1]
    python = re.fullmatch(r"python:(\d+)\.(\d+)-slim", line("FROM"))
    assert python is not None
    least = re.search(r">=(\d+)\.(\d+)", project["requires-python"])
    assert least is not None
    assert tuple(map(int, python.groups())) >= tuple(map(int, least.groups()))


def test_the_server_takes_its_options_and_runs_as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*json.loads(line("ENTRYPOINT")), *json.loads(line("CMD"))]
    assert words[:2] == ["hebblm", "serve"]
    try_command("hebblm.cli.serve:main", words[2:], monkeypatch)
    assert f"useradd --create-home --uid 10001 {line('USER')}" in line("RUN")
    assert line("EXPOSE") == "8080"
    assert line("VOLUME") == "/data"
    assert all(word.startswith("/data/") for word in words if word.startswith("/"))


def test_what_is_not_copied_is_there() -> None:
    names = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ".git" in names
    assert ".venv" in names
    for name in names:
        if not name.startswith((".", "**")):
            assert Path(ROOT, name).is_dir()
