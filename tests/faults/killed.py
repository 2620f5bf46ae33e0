"""Commands that are killed with -9 at random moments and run again: the same files, and nothing beside them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partialmethod
from importlib import import_module
from pathlib import Path
from typing import Any

from .formats import words

TIMES = ("seconds", "tokens_per_second", "command", "commit", "curve", "threads", "document_sha256")
TIMES += ("bytes_a_token", "seconds_a_token")  # of exchanges
"""What a run says of itself and not of its numbers."""


@dataclass(frozen=True)
class Job:
    """A command.

    Args:
        name: the module of ``hebblm.cli``.
        arguments: with ``{root}`` for its folder; it writes to ``{root}/out``.
        ranks: processes that run it together, as torchrun would start them.
    """

    name: str
    arguments: tuple[str, ...]
    ranks: int = 1


GOES_ON = ("goes on behind", "goes on from", "goes on in", "going on from")
SLOW = (
    "hebblm.corpus_memory",
    "hebblm.evaluation.opening",
    "hebblm.evaluation.run",
    "hebblm.language_model",
    "hebblm.models.training",
    "hebblm.report.document",
    "hebblm.tuning.tune",
    "hebblm.vision.document",
    "hebblm.vision.experiments",
    "matplotlib.pyplot",
    "sacremoses",
    "sklearn.datasets",
    "torch._dynamo",
)
OFTEN = (
    ("hebblm.evaluation.checkpoint", "EVERY", 0.0),
    ("hebblm.layout", "BLOCK", 20),
    ("hebblm.layout", "READ_AHEAD", 20),
    ("hebblm.tuning.sweep", "PART", 100),
    ("hebblm.corpus_memory", "PIECE", 20),
    ("hebblm.memory.disk", "SHARD", 50),
)
"""So that a small text is saved as often as a large one."""
TINY = (
    "--checkpoint",
    "{root}/model",
    "--text",
    "{root}/other.txt",
    "--device",
    "cpu",
    "--update-every",
    "10",
)
JOBS = {
    "train": Job("train", (
        "--corpus", "text:{root}/text.txt", "--preset", "tiny", "--epochs", "2", "--device", "cpu",
        "--output-path", "{root}/out",
    )),
    "eval": Job("eval", (
        *TINY, "--source", "text:{root}/text.txt", "--methods", "lstm,cache,mixture,mbpa,dynamic,dynamic+best",
        "--memory-content", "both", "--output-path", "{root}/out", "--log-samples", "--log-neighbors", "30",
    )),
    "tune": Job("tune", (
        *TINY, "--source", "text:{root}/text.txt", "--methods", "mixture,hebb,dynamic", "--max-tokens", "60",
        "--output-path", "{root}/out",
    )),
    "memory build": Job("memory", (
        "build", "--model", "{root}/model", "--text", "{root}/other.txt", "--output-path", "{root}/out",
        "--device", "cpu",
    )),
    "memory build on disk": Job("memory", (
        "build", "--model", "{root}/model", "--text", "{root}/other.txt", "{root}/text.txt",
        "--output-path", "{root}/out",
        "--device", "cpu", "--set", "memory.store=disk", "memory.index=IVF4,SQ8",
    )),
    "vision": Job("vision", (
        "online", "--scale", "smoke", "--seeds", "1", "--device", "cpu",
        "--set", "pretraining.epochs=2", "online.streamed=60", "--output-path", "{root}/out",
    )),
    "eval in two processes": Job("eval", (
        *TINY, "--source", "text:{root}/text.txt", "--methods", "lstm,cache,mixture,mbpa", "--streams", "4",
        "--memory-content", "both", "--output-path", "{root}/out", "--log-samples",
    ), ranks=2),
}  # fmt: skip


def world(root: Path) -> None:
    """Write two texts and a model of the first."""
    root.mkdir(parents=True)
    (root / "text.txt").write_text(words(120))
    (root / "other.txt").write_text(words(160)[-400:])
    status, _ = run(Job("train", (*JOBS["train"].arguments[:-1], "{root}/model")), root)
    assert status == 0, (root / "log").read_text()


def run(job: Job, root: Path, after: float | None = None, victim: int = 0) -> tuple[int, float]:
    """Run a command in processes of its own, one of which is killed once it computed for so many seconds.

    Returns:
        Its status, below 0 for a signal, and the seconds.
    """
    main: Callable[[], int] = import_module(f"hebblm.cli.{job.name}").main
    for module in SLOW:  # the time to load them is nothing that a kill could hurt
        import_module(module)
    (root / "log").unlink(missing_ok=True)
    port, processes = _free_port(), []
    for rank in range(job.ranks):
        process = os.fork()
        if process == 0:
            status = 70
            with suppress(BaseException):
                os.environ["HEBBLM_CACHE"] = str(root / "cache")
                if job.ranks > 1:
                    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.ranks), "LOCAL_RANK": str(rank)}
                    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                _save_often()
                sys.argv[1:] = [argument.format(root=root) for argument in job.arguments]
                status = main()  # a rank ends itself, as a user's does
            os._exit(status)
        processes.append(process)
    process = processes[victim]
    clock = (~process << 3) | 2  # of what it computes: on a busy machine others say nothing about its moments
    while after is not None and time.clock_gettime(clock) < after:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.001)
    if after is not None:
        for each in processes:  # the others as a launcher ends them
            os.kill(each, signal.SIGKILL if each == process else signal.SIGTERM)
    ended = [os.wait4(each, 0)[1:] for each in processes]
    used = ended[victim][1]
    return _worst(os.waitstatus_to_exitcode(status) for status, _ in ended), used.ru_utime + used.ru_stime


def _worst(statuses: Iterable[int]) -> int:
    """Return 0 where all processes ended well, else how one that did not ended."""
    return next((status for status in statuses if status), 0)


def _free_port() -> int:
    """Return a port of the loopback that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _save_often() -> None:
    for module, name, value in OFTEN:
        setattr(import_module(module), name, value)
    trainer = import_module("awd_lstm").Trainer
    trainer.run = partialmethod(trainer.run, save_every=0.0)


def files(root: Path) -> dict[str, str]:
    """Return every file of output and cache with the hash of what has to be the same."""
    found = {}
    for path in sorted([*(root / "out").rglob("*"), *(root / "cache").rglob("*"), *root.glob(".*")]):
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


def campaign(name: str, root: Path, count: int, minutes: float = float("inf"), first: int = 0) -> dict[str, Any]:
    """Kill a command at random moments, without what is in the cache every other time, and say what was found.

    Args:
        name: of the command.
        root: of everything that is written.
        count: of kills, those before the first included.
        minutes: after which it ends with fewer.
        first: number of the first kill; those before it were tried already.

    Returns:
        How often it was ``tried``, how often it ``survived``: the run after the kill ended well with the files of a run
        that was left alone, and no others; ``resumed``: how many of these said that they go on; ``ended``: how often
        the command was over before the kill; ``found``: what else.
    """
    job = JOBS[name]
    world(root)
    shutil.rmtree(root / "cache")
    status, length = run(job, root)
    assert status == 0, (root / "log").read_text()
    expected = files(root)
    survived, resumed, ended, found = 0, 0, 0, []
    begun, number = time.monotonic(), first
    while number < count and time.monotonic() - begun < 60 * minutes:
        shutil.rmtree(root / "out", ignore_errors=True)
        if number % 2:  # with the cache that a run left, and without
            shutil.rmtree(root / "cache", ignore_errors=True)
        draw = random.Random(f"{name} {number}")
        number += 1
        moment = draw.uniform(0, length)
        ended += run(job, root, moment, draw.randrange(job.ranks))[0] == 0
        (status, _), now = run(job, root), files(root)
        said = (root / "log").read_text()
        resumed += any(words in said for words in GOES_ON)
        if status == 0 and now == expected:
            survived += 1
        else:
            others = [key for key in {*expected, *now} if expected.get(key) != now.get(key)]
            found.append(f"{name} killed after {moment:.2f} s: status {status}, {', '.join(sorted(others)[:4])}")
    return {
        "tried": number - first,
        "survived": survived,
        "resumed": resumed,
        "ended": ended,
        "seconds": round(length, 2),
        "found": found,
    }


if __name__ == "__main__":
    print(json.dumps(campaign(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
