"""Two at once: the same command started twice, a random while apart, over one cache and one place."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from .figures import FOREVER, Case, Clock
from .killed import JOBS, Job, files, run, world

HEADING = "Two at once"
MENDED: tuple[str, ...] = ()
COMMANDS = ("train", "eval", "memory build")
PAIRS = 20
PATIENCE = 300.0  # seconds for both


def cases(
    scratch: Path, clock: Clock = FOREVER, pairs: int = PAIRS, commands: tuple[str, ...] = COMMANDS
) -> Iterator[tuple[str, Case]]:
    """Start each command twice, and yield what was found: both end well, with the files of one that was alone."""
    for name in commands:
        root, job, case = scratch / name.replace(" ", "-"), JOBS[name], Case()
        world(root)
        shutil.rmtree(root / "cache")
        status, length = run(job, root)
        assert status == 0, (root / "log").read_text()
        expected = files(root)
        for number in range(pairs):
            if clock.over():
                break
            shutil.rmtree(root / "out", ignore_errors=True)
            if number % 2:  # with the cache that a run left, and without
                shutil.rmtree(root / "cache", ignore_errors=True)
            apart = random.Random(f"{name} {number}").uniform(0, length)
            statuses, now = both(job, root, apart), files(root)
            others = [key for key in {*expected, *now} if expected.get(key) != now.get(key)]
            well = statuses == [0, 0] and not others
            case.count("" if well else f"{apart:.2f} s apart: {statuses}, {', '.join(sorted(others)[:4])}")
        yield name, case


def both(job: Job, root: Path, apart: float) -> list[int | None]:
    """Return the statuses of a command and, started so many seconds later, the same again; None for one that hangs."""
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
