"""Commands killed with -9 at random moments and run again, or started twice: the same files, and no
others.
"""

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partialmethod
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from hebblm.report.plots import drawing

from ..support.pictures import blank
from .sandbox import FOREVER, Case, Clock, Group, words

TIMES = ("seconds", "tokens_per_second", "command", "commit", "curve", "threads", "document_sha256")
TIMES += ("bytes_a_token", "seconds_a_token")  # of exchanges
"""What a run says of itself and not of its numbers."""
GOES_ON = ("continues after", "goes on from", "goes on in", "going on from")
SLOW = (
    "hebblm.reader.corpora", "hebblm.evaluation.opening", "hebblm.evaluation.run",
    "hebblm.api.language_model",
    "hebblm.models.training", "hebblm.report.render.document", "hebblm.tuning.tune",
    "matplotlib.pyplot", "sacremoses", "torch._dynamo",
)  # fmt: skip
SLOW_OF_PICTURES = ("hebblm.vision.report", "hebblm.vision.experiments", "sklearn.datasets")
"""Modules that are loaded before a process is forked: a kill could hurt nothing while they load."""
OFTEN = (
    ("hebblm.evaluation.checkpoint", "EVERY", 0.0),
    ("hebblm.online.layout", "BLOCK", 20),
    ("hebblm.online.layout", "READ_AHEAD", 20),
    ("hebblm.tuning.sweep", "PART", 100),
    ("hebblm.reader.corpora", "PART_SIZE", 20),
    ("hebblm.memory.disk", "SHARD", 50),
)
"""So that a small text is saved as often as a large one."""
TWICE = ("train", "eval", "memory build")  # commands that are started two at once
PAIRS = 20
PATIENCE = 300.0  # seconds for both


@dataclass(frozen=True)
class Job:
    """A command: a module of ``hebblm.cli``, arguments with {root} for its folder, and processes
    that run it together.

    It writes to {root}/out; several processes run as torchrun would start them.
    """

    name: str
    line: str
    ranks: int = 1


TINY = (
    "--checkpoint {root}/model --text {root}/other.txt --source text:{root}/text.txt --device cpu "
    "--update-every 10"
)
MEMORY = "build --model {root}/model --device cpu --output-path {root}/out --text {root}/other.txt"
TRAIN = "--corpus text:{root}/text.txt --preset tiny --epochs 2 --device cpu --output-path "
JOBS = {
    "train": Job("train", TRAIN + "{root}/out"),
    "eval": Job("eval", f"{TINY} --methods lstm,cache,mixture,mbpa,dynamic,dynamic+best "
        "--memory-content both"
                " --output-path {root}/out --log-samples --log-neighbors 30"),
    "tune": Job("tune", f"{TINY} --methods mixture,hebb,dynamic --max-tokens 60 --output-path "
        f"{{root}}/out"),
    "memory build": Job("memory", MEMORY),
    "memory build on disk": Job(
        "memory", f"{MEMORY} {{root}}/text.txt --set memory.store=disk memory.index=IVF4,SQ8"
    ),
    "vision": Job("vision", "online --scale smoke --seeds 1 --device cpu --set "
        "pretraining.epochs=2 online.streamed=60"
                  " --output-path {root}/out"),
    "eval in two processes": Job("eval", f"{TINY} --methods lstm,cache,mixture,mbpa --streams 4 "
        "--memory-content both"
                                 " --output-path {root}/out --log-samples", ranks=2),
}  # fmt: skip


def world(root: Path) -> None:
    """Write two texts and a model of the first."""
    root.mkdir(parents=True)
    (root / "text.txt").write_text(words(120))
    (root / "other.txt").write_text(words(160)[-400:])
    alone(Job("train", TRAIN + "{root}/model"), root)


def alone(job: Job, root: Path) -> tuple[dict[str, str], float]:
    """Run a command undisturbed; return its files, and the seconds that it computed."""
    status, seconds = run(job, root)
    assert status == 0, (root / "log").read_text()
    return files(root), seconds


def run(job: Job, root: Path, after: float | None = None, victim: int = 0) -> tuple[int, float]:
    """Run a command in processes of its own, one of which is killed once it computed for so many
    seconds.

    Returns its status, below 0 for a signal, and the seconds.
    """
    main: Callable[[], int] = import_module(f"hebblm.cli.{job.name}").main
    for module in SLOW + (SLOW_OF_PICTURES if job.name == "vision" else ()):
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
                    os.environ |= {
                        "RANK": str(rank),
                        "WORLD_SIZE": str(job.ranks),
                        "LOCAL_RANK": str(rank),
                    }
                    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                _save_often()
                # the threads that the parent computed with are not there after a fork
                torch.set_num_threads(1)
                sys.argv[1:] = job.line.format(root=root).split()
                status = main()  # a rank ends itself, as a user's does
            os._exit(status)
        processes.append(process)
    process = processes[victim]
    # of what it computes: on a busy machine others say nothing about its moments
    clock = (~process << 3) | 2
    while after is not None and time.clock_gettime(clock) < after:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.001)
    if after is not None:
        for each in processes:  # the others as a launcher ends them
            os.kill(each, signal.SIGKILL if each == process else signal.SIGTERM)
    ended = [os.wait4(each, 0)[1:] for each in processes]
    used = ended[victim][1]
    statuses = (os.waitstatus_to_exitcode(status) for status, _ in ended)
    return next((status for status in statuses if status), 0), used.ru_utime + used.ru_stime


def _free_port() -> int:
    """A port of the loopback that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _save_often() -> None:
    for module, name, value in OFTEN:
        setattr(import_module(module), name, value)
    trainer = import_module("awd_lstm").Trainer
    trainer.run = partialmethod(trainer.run, save_every=0.0)


def files(root: Path) -> dict[str, str]:
    """Every file of output and cache with the hash of what has to be the same."""
    found = {}
    for path in sorted(
        [*(root / "out").rglob("*"), *(root / "cache").rglob("*"), *root.glob(".*")]
    ):
        if path.is_file() and path.suffix not in (".html", ".png", ".svg", ".md", ".tex", ".csv"):
            found[str(path.relative_to(root))] = hashlib.sha256(_content(path)).hexdigest()
    return found


def _content(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    return json.dumps(_timeless(json.loads(path.read_text())), sort_keys=True).encode()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _others(expected: dict[str, str], now: dict[str, str]) -> str:
    """The first few files in which two runs differ."""
    names = [name for name in {*expected, *now} if expected.get(name) != now.get(name)]
    return ", ".join(sorted(names)[:4])


def _fresh(root: Path, number: int) -> None:
    """Remove what a run wrote, and every other time what it left in the cache."""
    shutil.rmtree(root / "out", ignore_errors=True)
    if number % 2:
        shutil.rmtree(root / "cache", ignore_errors=True)


def campaign(
    name: str, root: Path, count: int, minutes: float = float("inf"), first: int = 0
) -> dict[str, Any]:
    """Kill a command at random moments, without what is in the cache every other time, and say what
    was found.

    Kills are numbered up to ``count`` from ``first``, as those before were tried already. The
    figures: how often it was ``tried``, how often it ``survived``, that is the run after the kill
    ended well with the files of a run that was left alone, and no others; ``resumed``, how many of
    these said that they go on; ``ended``, how often the command was over before the kill;
    ``found``, what else.
    """
    job = JOBS[name]
    world(root)
    shutil.rmtree(root / "cache")
    expected, length = alone(job, root)
    survived, resumed, ended, found = 0, 0, 0, []
    begun, number = time.monotonic(), first
    while number < count and time.monotonic() - begun < 60 * minutes:
        _fresh(root, number)
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
            found.append(
                f"{name} killed after {moment:.2f} s: status {status}, {_others(expected, now)}"
            )
    figures = {"tried": number - first, "survived": survived, "resumed": resumed, "ended": ended}
    return {**figures, "seconds": round(length, 2), "found": found}


def two_at_once(
    scratch: Path, clock: Clock = FOREVER, pairs: int = PAIRS, commands: tuple[str, ...] = TWICE
) -> Iterator[tuple[str, Case]]:
    """Start each command twice, a random while apart: both are to end well, with the files of one
    that was alone.
    """
    for name in commands:
        root, job, case = scratch / name.replace(" ", "-"), JOBS[name], Case()
        world(root)
        shutil.rmtree(root / "cache")
        expected, length = alone(job, root)
        for number in range(pairs):
            if clock.over():
                break
            _fresh(root, number)
            apart = random.Random(f"{name} {number}").uniform(0, length)
            statuses, now = _both(job, root, apart), files(root)
            well = statuses == [0, 0] and now == expected
            case.count("" if well else f"{apart:.2f} s apart: {statuses}, {_others(expected, now)}")
        yield name, case


def _both(job: Job, root: Path, apart: float) -> list[int | None]:
    """Statuses of a command and, started so many seconds later, the same again; None for one that
    hangs.
    """
    processes = [get_context("fork").Process(target=_run, args=(job, root)) for _ in range(2)]
    end = time.monotonic() + PATIENCE
    for process, wait in zip(processes, (apart, 0.0), strict=True):
        process.start()
        time.sleep(wait)
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode is None and process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
    return [process.exitcode for process in processes]


def _run(job: Job, root: Path) -> None:
    os.setsid()  # with the process of the command itself
    sys.exit(run(job, root)[0])


GROUP = Group("Two at once", two_at_once)

if __name__ == "__main__":
    drawing.render = blank  # pictures are not compared
    scratch, first, end, *names = sys.argv[1:]
    figures = {
        name: campaign(name, Path(scratch) / name.replace(" ", "-"), int(end), first=int(first))
        for name in names
    }
    print(json.dumps(figures))
