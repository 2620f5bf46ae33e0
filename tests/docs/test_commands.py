"""The commands of README and docs run, page by page and in order, on a small text with a model that
ships.
"""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from .test_pages import COMMANDS, ROOT, command_lines

TEXT = (
    "Call frobnitz with two arguments, and it returns a list.\nThe function raises an error if "
    "quux is None.\n" * 60
)
TEXTS = (
    "novel.txt",
    "letters.txt",
    "notes.txt",
    "more.txt",
    "novels/one.txt",
    "articles/a.txt",
    "articles/b.txt",
)
STAND_INS = (
    (
        r"--(cross|intra)-domain (wt2-to-ptb|ptb|wt2)(?= |$)",
        "--checkpoint tiny-pydoc-raw --text novel.txt",
    ),
    (r"\bsmall-wt2-raw\b", "tiny-pydoc-raw"),
    (
        r"^hebblm-read someone/model\b(.*) --context 1024\b",
        r"hebblm-read llama-wt2-small\1 --context 64",
    ),
    (r"\bsmollm2-135m\b", "tiny-pydoc-raw"),
    (r"^hebblm-bench adapt(?!.* --scale)", r"\g<0> --scale smoke"),
    (r"\bIVF1024,PQ64x4fs\b", "IVF2,PQ8x4"),  # as many clusters as so few entries have
    (r" --max-tokens \d+", ""),
    (r"^hebblm-(eval|read|tune)\b(?!.* --(models|settings))", r"\g<0> --max-tokens 150"),
)
"""Patterns of what needs a download or much text, and what runs in its place."""
PARSED = {
    "it trains": r"^hebblm-(train|vision)\b",
    "another line trains its model": r"^hebblm-eval .*(corpora|runs)/",
    "it needs a corpus": r"--(target|source|corpus|joined-dictionary) (ptb|wt2|numpy|pydoc)\b",
    "there is no such model": r"\b(someone|folder/of)/model\b",
    "it answers until it is ended": r"^hebblm serve\b",
    "it starts processes, each of which takes seconds": r"--processes ",
}
"""Lines that tests/docs/test_pages.py alone tries, by letting the command parse them: why, and
their pattern.
"""
LONG = r"^hebblm-(bench|tune)\b|results/tuned/"
"""Pattern of lines that take seconds, or need what those make."""


def command_of(line: str) -> str | None:
    """Return the command that is run for a line of a page; None for one that is only parsed."""
    for pattern, other in STAND_INS:
        line = re.sub(pattern, other, line)
    known = line.split()[0] in COMMANDS
    return (
        line if known and not any(re.search(pattern, line) for pattern in PARSED.values()) else None
    )


def commands_of_pages() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for page, line in command_lines():
        if command := command_of(line):
            found.setdefault(page, []).append(command)
    return found


PAGES = commands_of_pages()


def run(
    commands: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in TEXTS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(TEXT)
    plugin = re.search(
        r"```python\n(.*?)```",
        (ROOT / "docs" / "new-method.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert plugin is not None
    (folder / "recent_words.py").write_text(plugin[1])
    monkeypatch.chdir(folder)
    for command in commands:
        name, *arguments = shlex.split(command)
        module, _, function = COMMANDS[name].partition(":")
        status = getattr(import_module(module), function)(arguments)
        assert status == 0, f"{command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [command for command in PAGES[page] if not re.search(LONG, command)]
    run(quick, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.search(LONG, "\n".join(PAGES[page]), re.MULTILINE)]
)
def test_so_do_those_that_take_longer(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PAGES[page], tmp_path, monkeypatch, capsys)


def test_most_commands_of_the_page_about_them_are_run() -> None:
    lines = [
        line
        for page, line in command_lines()
        if page == "command-line.md" and line.split()[0] in COMMANDS
    ]
    assert len(PAGES["command-line.md"]) > len(lines) / 2
    assert command_of("hebblm-train --corpus ptb") is None
    assert command_of("hebblm-eval --intra-domain ptb --max-tokens 5000") == (
        "hebblm-eval --max-tokens 150 --checkpoint tiny-pydoc-raw --text novel.txt"
    )


def test_a_command_that_fails_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        "hebblm-eval --checkpoint tiny-pydoc-raw --text novel.txt --methods lstm --max-tokens 150 "
        "--output-path run",
        "hebblm-report run --edges 1,10",
    ]
    with pytest.raises(AssertionError, match="--log-samples"):
        run(commands, tmp_path, monkeypatch, capsys)
