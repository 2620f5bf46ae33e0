"""Commands in processes of their own, with what they need made once, in worlds that lack something."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from .formats import words

PATIENCE = 300  # seconds for a command
LOADED = (
    "hebblm.evaluation.run",
    "hebblm.models.training",
    "hebblm.tuning.tune",
    "hebblm.report.inspection",
    "hebblm.reader",
    "hebblm.corpus_memory",
    "hebblm.language_model",
    "hebblm.vision.experiments",
    "sklearn.datasets",
    "faiss",
)
"""Modules that are loaded once, before processes are forked."""


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Args:
        name: for people.
        module: of ``hebblm.cli``.
        arguments: with ``{root}`` for the folder of what it reads, and ``{out}`` for what it writes.
    """

    name: str
    module: str
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, name: str, line: str) -> Writer:
        """Return a command from its line, the first word of which is the module."""
        module, *arguments = line.split()
        return cls(name, module, tuple(arguments))


EVALUATION = "--checkpoint {root}/model --text {root}/other.txt --device cpu --max-tokens 60 --methods lstm,mixture"
WRITERS = (
    Writer.of("preprocess", "preprocess --text {root}/text.txt --output-path {out}"),
    Writer.of("train", "train --corpus text:{root}/text.txt --preset tiny --epochs 1 --output-path {out}"),
    Writer.of("eval", f"eval {EVALUATION} --log-samples --log-neighbors 20 --output-path {{out}}"),
    Writer.of("tune", "tune --checkpoint {root}/model --text {root}/other.txt --device cpu --max-tokens 40"
              " --methods knn --skip-dynamic --output-path {out}"),
    Writer.of("read --save", "read {root}/model {root}/short.txt --device cpu --save {out}"),
    Writer.of("report", "report {root}/result --output-path {out}"),
    Writer.of("report inspect", "report inspect {root}/result --output-path {out}/page.html"),
    Writer.of("vision", "vision online --scale smoke --seeds 1 --output-path {out}"),
    Writer.of(
        "memory build", "memory build --model {root}/model --text {root}/short.txt --device cpu --output-path {out}"
    ),
    Writer.of("memory merge", "memory merge {root}/memory {root}/memory --output-path {out}"),
)  # fmt: skip


def load() -> None:
    """Load what commands load, so that each forked process starts at once."""
    for name in (*LOADED, *(f"hebblm.cli.{writer.module}" for writer in WRITERS)):
        with suppress(ImportError):
            import_module(name)


def make_world(root: Path) -> None:
    """Write texts, a model, a result and a memory."""
    load()
    root.mkdir(parents=True)
    (root / "text.txt").write_text(words(400))
    (root / "other.txt").write_text(words(40))
    (root / "short.txt").write_text(words(5))
    by_name = {writer.name: writer for writer in WRITERS}
    for name, place in (("train", "model"), ("eval", "result"), ("memory build", "memory")):
        found = run(by_name[name], root, root / place, {"HEBBLM_CACHE": str(root / "cache")})
        assert found.status == 0, (name, found)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        status: its exit status, below 0 for a signal.
        lines: of standard error.
        peak: KiB of resident memory at most.
    """

    status: int
    lines: tuple[str, ...]
    peak: int

    def defect(self) -> str:
        """Return what is wrong with the way it ended: "" for status 0, or status 2 after one line of its own."""
        if self.status == 0:
            return "" if not any("Traceback" in line for line in self.lines) else f"traceback: {self.lines[-1]}"
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
    """Run a command in a process of its own.

    Args:
        writer: the command.
        root: of the world.
        out: what it writes.
        environment: variables, None for those that are not to be set.
        before: run within the process first; takes something away from it.
        patience: seconds that it may take; then it is killed.
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
        told = stream.read().decode(errors="replace")
    _, code, used = os.wait4(process, 0)
    lines = (line.rsplit("\r", 1)[-1].strip() for line in told.splitlines())
    return Ended(os.waitstatus_to_exitcode(code), tuple(line for line in lines if line), used.ru_maxrss)


def _become(told: int, environment: Mapping[str, str | None]) -> None:
    """Let this process write to a pipe what people would see, in another environment."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(told, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _status(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Return the status that a command would end its process with, after the traceback that people would see."""
    import traceback

    try:
        return main(arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _no_longer_than(seconds: int, process: int) -> Iterator[None]:
    """Kill a process that takes longer."""

    def kill(*_: object) -> None:
        os.kill(process, signal.SIGKILL)

    former = signal.signal(signal.SIGALRM, kill)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def tree(folder: Path) -> dict[str, str]:
    """Return every file below a folder, hidden ones too, with the hash of its bytes."""
    if not folder.exists():
        return {}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
