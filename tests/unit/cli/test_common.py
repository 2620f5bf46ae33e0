from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from awd_lstm import CheckpointError
from hebblm.cli.common import guarded, parse
from hebblm.errors import UserError


@dataclass(frozen=True)
class Inner:
    """Settings within settings.

    Args:
        depth: how deep.
    """

    depth: int = 3


@dataclass(frozen=True)
class Config:
    """A command.

    Args:
        corpus: what is read.
        split: which part
            of it.
        max_tokens: read only so many.
        rate: of learning.
        names: any number.
        output_path: a folder.
        quick: leave things out.
        values: by name.
        inner: more.
    """

    corpus: str
    split: Literal["test", "valid"] = "test"
    max_tokens: int | None = None
    rate: float = 0.5
    names: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    output_path: Path | None = None
    quick: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise UserError(f"rate = {self.rate} must not be negative")


def parsed(*argv: str) -> Config:
    return parse(Config, list(argv), prog="try", description="Try it.", example="try --corpus ptb")


def test_defaults_and_types() -> None:
    assert parsed("--corpus", "ptb") == Config("ptb")
    found = parsed(
        "--corpus=x", "--split", "valid", "--max-tokens", "7", "--rate", "1e-3", "--names", "a=1",
        "b", "--quick",
        "--output-path", "here/there", "--inner.depth", "5",
    )  # fmt: skip
    assert found == Config(
        "x", "valid", 7, 1e-3, ["a=1", "b"], Path("here/there"), True, {}, Inner(5)
    )
    assert isinstance(found.output_path, Path)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_gives_values_and_the_command_line_overrides_them(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"config.{suffix}"
    text = {
        "json": '{"corpus": "wt2", "max_tokens": 9, "values": {"hebb.beta": 0.5}, "inner": '
        '{"depth": 8}}',
        "yaml": "corpus: wt2\nmax_tokens: 9\nvalues:\n  hebb.beta: 0.5\ninner:\n  depth: 8\n",
    }[suffix]
    path.write_text(text)
    found = parsed("--config", str(path), "--max-tokens", "4")
    assert found == Config("wt2", max_tokens=4, values={"hebb.beta": 0.5}, inner=Inner(8))


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["--corpus", "x", "--split", "train"], ["split", "train"]),
        (["--corpus", "x", "--unheard-of", "1"], ["unheard-of"]),
        (["--corpus", "x", "--rate", "-1"], ["rate = -1"]),
        (["--corpus", "x", "extra"], ["extra"]),
        (["--corpus", "x", "--config", "/no/such/file.json"], ["/no/such/file.json"]),
        ([], ["corpus"]),
    ],
)
def test_mistakes_are_one_line_that_names_the_value(argv: list[str], names: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parsed(*argv)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    assert all(name in message for name in names), message


def test_a_file_with_a_mistyped_choice_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("split: tset\n")
    with pytest.raises(
        UserError, match=r"^unknown split 'tset'; did you mean test\? choose test, valid$"
    ):
        parsed("--corpus", "x", "--config", str(path))


def test_help_shows_defaults_and_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed("--help")
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "Try it.",
        "example: try --corpus ptb",
        "which part of it",
        "default: 0.5",
        "--max-tokens",
    ):
        assert words in shown, words


@dataclass(frozen=True)
class Paths:
    """Paths.

    Args:
        text: what is read.
        others: further ones.
    """

    text: Path = field(metadata={"positional": True})
    others: list[Path] = field(default_factory=list, metadata={"nargs": "+"})


def test_help_names_a_type_as_people_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(Paths, ["--help"], prog="try", description="Try it.", example="try notes.txt")
    shown = " ".join(capsys.readouterr().out.split())
    assert "what is read. (required, type: Path)" in shown
    assert "further ones. (type: Path, default: [])" in shown


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (UserError("k = 0 must be at least 1"), 2, "try: error: k = 0 must be at least 1\n"),
        (CheckpointError("no checkpoint at x"), 2, "try: error: no checkpoint at x\n"),
        (KeyboardInterrupt(), 130, "try: interrupted; what was finished is kept\n"),
        (KeyboardInterrupt("nothing was saved"), 130, "try: interrupted; nothing was saved\n"),
        (RuntimeError("a defect"), 1, ""),
        (None, 0, ""),
    ],
)
def test_a_mistake_ends_with_its_status_and_one_line(
    raised: BaseException | None, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @guarded("try")
    def main(argv: list[str] | None = None) -> int:
        if raised is not None:
            raise raised
        return 0

    if isinstance(raised, RuntimeError):  # a defect of the program keeps its traceback
        with pytest.raises(RuntimeError, match="a defect"):
            main([])
        return
    assert main([]) == status
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("config: other.yaml\n", "'config'"),
        ("names: {class_path: os.system}\n", "'class_path'"),
        ("values: {x: [{init_args: {}}]}\n", "'init_args'"),
        ("names: {x: y}\n", "names takes any number of values; write a list"),
        ('output_path: "o\\0x"\n', "output_path holds a NUL character"),
        ('values: {"a\\0": 1}\n', r"values.a\? holds a NUL character"),
        ("1: 2\n", "the key 1, which is not an option"),
        ("max_tokens: 1e3\n", "max_tokens = 1000.0 must be a whole number"),
        ("max_tokens: 1\nmax_tokens: 2\n", "a key stands twice from line 1 on"),
        ("<<: {max_tokens: 1}\n", "<< from line 1 on is not read"),
        (f"rate: {'9' * 400}\n", "is too large a number; choose one below 2"),
        ("max_tokens: !!timestamp 2001-01-0\n", "tags are not read"),
        ('{"corpus": "x", "unheard_of": 1}', ""),
        ('{"corpus": "x", "rate": "fast"}', ""),
        ("{", ""),
        ("[1]", ""),
    ],
)
def test_what_a_file_of_options_cannot_hold(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"^[^\n]*{told}[^\n]*$"):
        parsed("--corpus", "x", "--config", str(path))


@pytest.mark.parametrize(
    ("words", "status", "lines"),
    [
        ("memory --help >&-", 0, 0),
        ("eval --help >/dev/full", 2, 1),
        ("memory info nowhere >&-", 2, 1),
        ("memory info nowhere 2>/dev/full", 2, 0),
    ],
)
def test_output_that_cannot_be_written_is_no_traceback(words: str, status: int, lines: int) -> None:
    command = ["sh", "-c", f"exec {sys.executable} -m hebblm.cli.{words}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, lines), done.stderr
    assert not done.stdout


def test_an_empty_path_is_not_the_working_folder() -> None:
    for argv in (["--output-path", ""], ["--output-path="]):
        with pytest.raises(UserError, match="--output-path is empty; name a path"):
            parsed("--corpus", "ptb", *argv)
    assert parsed("--corpus", "", "--names", "output_path=", "output_path", "").corpus == ""


@dataclass(frozen=True)
class Files:
    """What is done with files.

    Args:
        name: the first.
        files: the others.
        words: any number.
        rate: of learning.
        quick: leave things out.
    """

    name: str = field(metadata={"positional": True})
    files: list[Path] = field(default_factory=list, metadata={"positional": True, "nargs": "*"})
    words: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    rate: float = 0.5
    quick: bool = False


@pytest.mark.parametrize(
    "argv",
    [
        "m a --rate -2 --words x y --quick -- -b",
        "--rate=-2 m --words x y --quick a -- -b",
        "--rate -2 --words x y --quick -- m a -b",
    ],
)
def test_options_may_stand_before_between_and_behind_arguments(argv: str) -> None:
    found = parse(Files, argv.split(), prog="try", description="Try it.", example="try m")
    assert found == Files("m", [Path("a"), Path("-b")], ["x", "y"], -2.0, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--rate 1", "name"),
        ("m a --e", "unknown option '--e'"),
        ("m --rtae 1 a", "did you mean --rate"),
        ("m --rate x a", "rate = x"),
    ],
)
def test_what_arguments_lack_is_told_wherever_they_stand(argv: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(Files, argv.split(), prog="try", description="Try it.", example="try m")


def test_a_ctrl_c_while_a_command_is_being_imported_is_one_line() -> None:
    for error, status, lines in (("KeyboardInterrupt", -signal.SIGINT, 1), ("ValueError(3)", 1, 3)):
        command = [sys.executable, "-c", f"import hebblm.cli; raise {error}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == status
        assert len(ended.stderr.splitlines()) == lines
