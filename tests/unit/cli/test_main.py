"""``hebblm`` has every command as a subcommand."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hebblm
from hebblm.cli.eval import main as evaluates
from hebblm.cli.main import SUBCOMMANDS, main

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def test_every_command_is_a_subcommand_of_one() -> None:
    named = {f"hebblm-{name}": f"hebblm.cli.{name}:main" for name in SUBCOMMANDS}
    assert {"hebblm": "hebblm.cli.main:main", **named} == PROJECT["scripts"]


def test_a_subcommand_does_what_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluates(["--settings"]) == 0
    settings = capsys.readouterr().out
    assert main(["eval", "--settings"]) == 0
    assert capsys.readouterr().out == settings


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_alone_it_lists_its_subcommands(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in SUBCOMMANDS)


def test_the_version_is_that_of_the_package() -> None:
    command = [sys.executable, "-m", "hebblm", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"hebblm {hebblm.__version__}\n"
    assert hebblm.__version__ == PROJECT["version"]
