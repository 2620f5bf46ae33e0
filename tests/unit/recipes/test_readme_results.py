"""The numbers of README and docs are those of the committed results; their links lead somewhere, their code runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from recipes import readme_results as script

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
named = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for name, code in found if name == language]


def test_tables_are_those_of_the_committed_results() -> None:
    for path, text in script.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m recipes.readme_results"


def test_a_changed_number_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = script.README.read_text(encoding="utf-8")
    head, table = text.split(script.DEFAULTS_BEGIN)
    number = re.search(r"\d+\.\d\d", table)
    assert number is not None
    changed = tmp_path / "README.md"
    changed.write_text(
        f"{head}{script.DEFAULTS_BEGIN}{table.replace(number[0], '0.12', 1)}", encoding="utf-8"
    )
    monkeypatch.setattr(script, "README", changed)
    assert script.pages()[changed] == text


@named
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@named
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = blocks(page, "python")
    for path in ("recipes", "data"):
        (tmp_path / path).symlink_to(ROOT / path)
    monkeypatch.chdir(tmp_path)
    for block in code:
        if "to_pandas" in block:
            pytest.importorskip("pandas")
        exec(compile(block, str(page), "exec"), {})


@named
def test_commands_know_their_options(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.partition("#")[0] for block in blocks(page, "") for line in block.splitlines()]
    for words in (shlex.split(line) for line in lines if line.startswith("hebblm-")):
        program = words[0].removeprefix("hebblm-")
        main = __import__(f"hebblm.cli.{program}", fromlist=["main"]).main
        verb = [word for word in words[1:2] if program in ("bench", "vision") or word == "inspect"]
        with pytest.raises(SystemExit):
            main([*verb, "--help"])
        known = capsys.readouterr().out
        for option in (word for word in words if word.startswith("--")):
            assert option.partition("=")[0] in known, " ".join(words)
