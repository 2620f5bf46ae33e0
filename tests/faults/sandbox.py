"""Commands in processes of their own, in worlds that lack something, and figures of what came of
them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

MOST_TOLD = 20  # defects of a case that are kept
PATIENCE = 300  # seconds for a command
LOADED = (
    "hebblm.evaluation.run", "hebblm.models.training", "hebblm.tuning.tune",
    "hebblm.report.render.inspection",
    "hebblm.reader.reader", "hebblm.reader.corpora", "hebblm.api.language_model",
    "hebblm.vision.experiments",
    "sklearn.datasets",
    "faiss",
)  # fmt: skip
"""Modules that are loaded once, before processes are forked."""


class Clock:
    """Says when a group's time is over; what was not tried by then is missing from its figures."""

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def over(self) -> bool:
        return time.monotonic() > self._end


FOREVER = Clock()


@dataclass
class Case:
    """How often a case was tried, how often it ended as promised, and what else happened."""

    tried: int = 0
    survived: int = 0
    note: str = ""  # beside the numbers, such as how many were refused
    defects: list[str] = field(default_factory=list)

    def count(self, defect: str = "") -> None:
        self.tried += 1
        if defect:
            self.defects.append(defect)
        else:
            self.survived += 1

    def to_json(self) -> dict[str, Any]:
        shown = {"tried": self.tried, "survived": self.survived, "note": self.note}
        return {**shown, "defects": self.defects[:MOST_TOLD]}


@dataclass(frozen=True)
class Group:
    """Cases under one heading of recipes/reliability.md, and what fell to them at first."""

    heading: str
    cases: Callable[[Path, Clock], Iterator[tuple[str, Case]]]
    mended: tuple[str, ...] = ()


@dataclass(frozen=True)
class Writer:
    """A command: a module of ``hebblm.cli``, and arguments with {root} of what it reads and {out}
    of what it writes.
    """

    name: str
    module: str
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, name: str, line: str) -> Writer:
        """A command from its line, the first word of which is the module."""
        module, *arguments = line.split()
        return cls(name, module, tuple(arguments))


EVALUATION = (
    "--checkpoint {root}/model --text {root}/other.txt --device cpu --max-tokens 60 --methods "
    "lstm,mixture"
)
WRITERS = (
    Writer.of("preprocess", "preprocess --text {root}/text.txt --output-path {out}"),
    Writer.of("train", "train --corpus text:{root}/text.txt --preset tiny --epochs 1 --output-path "
        "{out}"),
    Writer.of("eval", f"eval {EVALUATION} --log-samples --log-neighbors 20 --output-path {{out}}"),
    Writer.of("tune", "tune --checkpoint {root}/model --text {root}/other.txt --device cpu "
        "--max-tokens 40"
              " --methods knn --skip-dynamic --output-path {out}"),
    Writer.of("read --save", "read {root}/model {root}/short.txt --device cpu --save {out}"),
    Writer.of("report", "report {root}/result --output-path {out}"),
    Writer.of("report inspect", "report inspect {root}/result --output-path {out}/page.html"),
    Writer.of("vision", "vision online --scale smoke --seeds 1 --output-path {out}"),
    Writer.of(
        "memory build", "memory build --model {root}/model --text {root}/short.txt --device cpu "
            "--output-path {out}"
    ),
    Writer.of("memory merge", "memory merge {root}/memory {root}/memory --output-path {out}"),
)  # fmt: skip


def words(count: int = 400) -> str:
    """A text in lines of six words."""
    draw = random.Random(1)
    return "".join(" ".join(draw.choices("abcdefghijklmnop", k=6)) + "\n" for _ in range(count))


def make_world(root: Path) -> None:
    """Write texts, a model, a result and a memory; what commands load is loaded, so that forked
    ones start at once.
    """
    for name in (*LOADED, *(f"hebblm.cli.{writer.module}" for writer in WRITERS)):
        with suppress(ImportError):
            import_module(name)
    root.mkdir(parents=True)
    for name, lines in (("text", 400), ("other", 40), ("short", 5)):
        (root / f"{name}.txt").write_text(words(lines))
    by_name = {writer.name: writer for writer in WRITERS}
    for name, folder in (("train", "model"), ("eval", "result"), ("memory build", "memory")):
        ended = run(by_name[name], root, root / folder, {"HEBBLM_CACHE": str(root / "cache")})
        assert ended.status == 0, (name, ended)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int  # below 0 for a signal
    lines: tuple[str, ...]  # of standard error
    peak: int  # KiB of resident memory at most

    def defect(self) -> str:
        """What is wrong with the way it ended: "" for status 0, or status 2 after one line of its
        own.
        """
        if self.status == 0:
            return (
                ""
                if not any("Traceback" in line for line in self.lines)
                else f"traceback: {self.lines[-1]}"
            )
        if self.status != 2:
            return f"status {self.status}: {' / '.join(self.lines[-2:]):.300}"
        errors = [line for line in self.lines if ": error: " in line]
        if len(errors) != 1 or any("Traceback" in line for line in self.lines):
            return f"not one line: {' / '.join(self.lines[-3:]):.300}"
        return ""


def run(
    writer: Writer,
    root: Path,
    out: Path,
    environment: Mapping[str, str | None],
    before: Callable[[], None] = lambda: None,
    patience: int = PATIENCE,
) -> Ended:
    """Run a command in a process of its own, for ``patience`` seconds at most.

    Variables of the environment that are None are not set. ``before`` runs within the process
    first, and takes something away from it.
    """
    main = import_module(f"hebblm.cli.{writer.module}").main
    arguments = [argument.format(root=root, out=out) for argument in writer.arguments]
    mine, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        status = 70
        with suppress(BaseException):
            _become(theirs, environment)
            os.chdir("/")
            before()
            status = _status(main, arguments)
        with suppress(BaseException):
            sys.stdout.flush()
        os._exit(status)
    os.close(theirs)
    with os.fdopen(mine, "rb") as stream, _no_longer_than(patience, process):
        said = stream.read().decode(errors="replace")
    _, code, used = os.wait4(process, 0)
    lines = (line.rsplit("\r", 1)[-1].strip() for line in said.splitlines())
    return Ended(
        os.waitstatus_to_exitcode(code), tuple(line for line in lines if line), used.ru_maxrss
    )


def _become(pipe: int, environment: Mapping[str, str | None]) -> None:
    """Let this process write to a pipe what people would see, in another environment."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    torch.set_num_threads(1)  # the threads that the parent computed with are not there after a fork
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(pipe, 2)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2)
    )
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _status(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """The status that a command would end its process with, after the traceback that people would
    see.
    """
    try:
        return main(arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _no_longer_than(seconds: int, process: int) -> Iterator[None]:
    former = signal.signal(signal.SIGALRM, lambda *_: os.kill(process, signal.SIGKILL))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too, with the hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
