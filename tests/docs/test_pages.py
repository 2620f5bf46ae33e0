"""Every block of README and docs is tried: commands are parsed by the command itself, Python is
run.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hebblm.adapt.methods import EVALUATED, unaliased
from hebblm.cli import common
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path
        for name in ("README", "conclusions", "reliability")
        for path in (ROOT / "recipes").rglob(f"{name}.md")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# code, and what it prints where that follows
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\s+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+\.\d+")
LANGUAGES = ("sh", "python", "text")
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "scripts"
]
FURTHER = ("mkdir", "pip", "curl")  # of every shell; what they are given is not tried


class Block(NamedTuple):
    """A fenced block."""

    page: Path  # where it stands
    language: str  # behind the fence
    text: str  # within it


class Parsed(BaseException):
    """A command line was taken; carries the options."""


def blocks(page: Path) -> Iterator[Block]:
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        yield Block(page, match[1], match[2])


def command_lines() -> list[tuple[str, str]]:
    """Return the lines of all shell blocks, with the name of their page."""
    lines = [
        (page.name, line.partition(" #")[0].strip())
        for page in PAGES
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    return [(page, line) for page, line in lines if line]


def test_every_block_says_what_it_holds() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert {block.language for block in found} == set(LANGUAGES)


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_is_one_and_takes_its_options(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    name, arguments = words[0], words[1:]
    if name in COMMANDS:
        monkeypatch.chdir(tmp_path)
        if "--config" in arguments:
            values = Path(arguments[arguments.index("--config") + 1])
            values.parent.mkdir(parents=True)
            values.write_text("{}")
        try_command(COMMANDS[name], arguments, monkeypatch)
    elif name == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in arguments)
    elif name == "python":
        assert arguments[0] == "-m"
        assert importlib.util.find_spec(arguments[1]) is not None
    else:
        assert (ROOT / name).is_file() or name in FURTHER, (
            f"{page} names a command that is none: {line}"
        )


def try_command(entry: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command parse its arguments, and stop it before it does anything."""
    module_name, _, function = entry.partition(":")
    module = importlib.import_module(module_name)
    parse: Callable[..., Any] = common.parse

    def stopped(*given: Any, **named: Any) -> Any:
        raise Parsed(parse(*given, **named))

    for place in (common, module):
        monkeypatch.setattr(place, "parse", stopped, raising=False)
    with pytest.raises(Parsed) as caught:
        getattr(module, function)(arguments)
    config = caught.value.args[0]
    methods = getattr(config, "methods", None) or ""
    assert getattr(config, "plugin", None) or all(
        name in EVALUATED or name in ("all", "") for name in map(unaliased, methods.split(","))
    )
    if module_name == "hebblm.cli.eval":
        Hyperparameters().changed(parse_settings(config.set))


def test_an_option_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        try_command(
            "hebblm.cli.eval:main", ["--intra-domain", "ptb", "--colour", "red"], monkeypatch
        )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.language == "python" for block in blocks(page))],
    ids=str,
)
def test_python_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"__name__": "__main__"}
    monkeypatch.chdir(tmp_path)
    for code, said in PYTHON.findall(page.read_text(encoding="utf-8")):
        capsys.readouterr()
        exec(compile(code, str(page), "exec", dont_inherit=True), names)
        printed = capsys.readouterr().out
        assert not said or alike(printed, said), printed


def alike(printed: str, said: str) -> bool:
    """Say whether two outputs are the same but for one in the last digit of a broken number."""
    if NUMBER.sub("", printed) != NUMBER.sub("", said):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(said), strict=True)
    return all(
        abs(float(one) - float(other)) < 1.5 * 10.0 ** -len(other.partition(".")[2])
        for one, other in pairs
    )


def test_another_output_is_noticed() -> None:
    assert alike("is 0.1534\n", "is 0.1535\n")
    assert not alike("is 0.1534\n", "is 0.1536\n")
    assert not alike("is 0.1534\n", "was 0.1534\n")
    assert not alike("is 0.1534\n", "")


def test_readme_shows_what_its_python_prints() -> None:
    found = PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) == 1
    assert all(said for _, said in found)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def prose(page: Path) -> str:
    """Return what a person wrote on a page: no code, and nothing between marks."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<!-- (\S+): written by .*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "", FENCE.sub("", text))


# whose numbers stand in the files it links to
MEASURING = [page for page in PAGES if page.name != "solver.md"]


@pytest.mark.parametrize("page", MEASURING, ids=str)
def test_measured_numbers_are_written_by_the_script(page: Path) -> None:
    allowed = {"3.11", "95 %"}  # the oldest Python; the width of intervals
    found = re.findall(
        r"\d[\d,]*\.\d+|\d[\d,.]*\s?(?:%|nats\b|ms\b|seconds\b|tokens a second)", prose(page)
    )
    assert set(found) <= allowed


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
