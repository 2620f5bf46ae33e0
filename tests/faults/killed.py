"""Commands that are killed with -9 at random moments and run again: the same files, and nothing beside them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .formats import words

TIMES = ("seconds", "tokens_per_second", "command", "commit", "curve", "threads", "document_sha256")
"""What a run says of itself and not of its numbers."""


@dataclass(frozen=True)
class Job:
    """A command.

    Args:
        name: the module of ``hebblm.cli``.
        arguments: with ``{root}`` for its folder; it writes to ``{root}/out``.
    """

    name: str
    arguments: tuple[str, ...]


SLOW = (
    "hebblm.evaluation.run",
    "hebblm.models.training",
    "hebblm.vision.new_classes.setup",
    "sklearn.datasets",
)
TINY = ("--checkpoint", "{root}/model", "--text", "{root}/other.txt", "--device", "cpu")
JOBS = {
    "train": Job("train", (
        "--corpus", "text:{root}/text.txt", "--preset", "tiny", "--epochs", "2", "--output-path", "{root}/out",
    )),
    "eval": Job("eval", (*TINY, "--methods", "lstm,mixture,mbpa", "--output-path", "{root}/out", "--log-samples")),
    "memory build": Job("memory", (
        "build", "{root}/other.txt", "--checkpoint", "{root}/model", "--output-path", "{root}/out",
    )),
    "vision": Job("vision", (
        "online", "--scale", "smoke", "--seeds", "1", "--hyperparameters", "tuned", "--output-path", "{root}/out",
    )),
}  # fmt: skip


def world(root: Path) -> None:
    """Write two texts and a model of the first."""
    root.mkdir(parents=True)
    (root / "text.txt").write_text(words(400))
    (root / "other.txt").write_text(words(40))
    status = run(Job("train", (*JOBS["train"].arguments[:-1], "{root}/model")), root)
    assert status == 0, status


def run(job: Job, root: Path, after: float | None = None) -> int:
    """Run a command in a process of its own, killed after so many seconds; return its status, below 0 for a signal."""
    main: Callable[[list[str]], int] = import_module(f"hebblm.cli.{job.name}").main
    for module in SLOW:  # the time to load them is nothing that a kill could hurt
        import_module(module)
    process = os.fork()
    if process == 0:
        status = 70
        with suppress(BaseException):
            os.environ["HEBBLM_CACHE"] = str(root / "cache")
            log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = main([argument.format(root=root) for argument in job.arguments])
        os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def files(root: Path) -> dict[str, str]:
    """Return every file of output and cache with the hash of what has to be the same."""
    found = {}
    for path in sorted([*(root / "out").rglob("*"), *(root / "cache").rglob("*")]):
        if path.is_file() and path.suffix not in (".html", ".png", ".svg", ".md", ".tex", ".csv"):
            name = str(path.relative_to(root))
            found[name] = hashlib.sha256(_content(path)).hexdigest()
    return found


def _content(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    return json.dumps(_timeless(json.loads(path.read_text())), sort_keys=True).encode()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def campaign(name: str, root: Path, count: int) -> dict[str, Any]:
    """Kill a command ``count`` times at random moments, a run in two, and say what was found.

    Returns:
        How often it was ``tried``, how often it ``survived``: the run after the kill ended well with the files of a run
        that was left alone, and no others; ``found``: what else.
    """
    job, draw = JOBS[name], random.Random(name)
    world(root)
    shutil.rmtree(root / "cache")
    begin = time.monotonic()
    assert run(job, root) == 0, (root / "log").read_text()
    length, expected = time.monotonic() - begin, files(root)
    survived, found = 0, []
    for number in range(count):
        shutil.rmtree(root / "out", ignore_errors=True)
        if number % 2:  # with the cache that a run left, and without
            shutil.rmtree(root / "cache", ignore_errors=True)
        moment = draw.uniform(0, length)
        run(job, root, moment)
        status, now = run(job, root), files(root)
        if status == 0 and now == expected:
            survived += 1
        else:
            others = [key for key in {*expected, *now} if expected.get(key) != now.get(key)]
            found.append(
                f"{name} killed after {moment:.2f} s: status {status}, {', '.join(sorted(others)[:4])}"
            )
    return {"tried": count, "survived": survived, "found": found}


if __name__ == "__main__":
    print(campaign(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
