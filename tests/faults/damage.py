"""Damaged files of each format: loaded as they were, refused in one line, or a defect."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from awd_lstm import CheckpointError
from hebblm.errors import UserError

from .formats import Format, made
from .mutate import damaged

LIMIT = 10  # seconds
RIGHT, REFUSED, OTHER, TRACEBACK, HANGS = ("loaded as it was", "refused", "loaded as another", "traceback", "hangs")
DIED, LARGE = "interpreter died", "more than 1 GiB"
DEFECTS = (OTHER, TRACEBACK, HANGS, DIED, LARGE)


class _TooLongError(BaseException):
    """A read that took too long; no handler of exceptions may catch it."""


def _stop(*_: Any) -> None:
    raise _TooLongError


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


def trial(form: Format, folder: Path, right: Any, seed: int) -> tuple[str, str]:
    """Damage one file of a sample, read, and put the file back; return what came of it, and the error in short."""
    draw = random.Random(f"{form.name} {seed}")
    path = folder / draw.choice(form.files)
    content = path.read_bytes()
    former = signal.signal(signal.SIGALRM, _stop)
    try:
        path.write_bytes(damaged(content, draw))
        signal.alarm(LIMIT)
        with _quiet():
            found = form.read(folder)
        return (RIGHT if not form.hashed or found == right else OTHER), ""
    except (UserError, CheckpointError) as error:
        one_line = "\n" not in str(error) and len(str(error)) < 2_000
        return (REFUSED if one_line else TRACEBACK), str(error)
    except _TooLongError:
        return HANGS, ""
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
        path.write_bytes(content)


def _work(form: Format, folder: Path, seeds: range, pipe: Connection) -> None:
    """Send what comes of each seed."""
    right = made(form, folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds:
        found = trial(form, folder, right, seed)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > 1 << 20:  # in KiB
            found = (LARGE, "")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pipe.send((seed, *found))


def campaign(form: Format, folder: Path, count: int) -> tuple[Counter[str], list[str]]:
    """Try the seeds below ``count`` in a process of their own; return what came of them, and the defects."""
    counts: Counter[str] = Counter()
    defects, begin, context = [], 0, get_context("fork")
    while begin < count:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(form, folder, range(begin, count), theirs))
        process.start()
        theirs.close()
        with contextlib.suppress(EOFError):
            while begin < count:
                seed, what, told = mine.recv()
                counts[what] += 1
                begin = seed + 1
                if what in DEFECTS:
                    defects.append(f"{form.name}, seed {seed}: {what} {told:.200}")
        process.join(2 * LIMIT)
        if begin < count:
            counts[DIED] += 1
            defects.append(f"{form.name}, seed {begin}: {DIED} ({process.exitcode})")
            begin += 1
    return counts, defects
