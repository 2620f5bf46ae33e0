"""Damage by seed, and damaged files of each format: loaded as they were, refused in one line, or a
defect.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
from collections import Counter
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from awd_lstm import CheckpointError
from hebblm.errors import UserError

from .formats import Format, made

LIMIT = 10  # seconds
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    10**30,
    1e308,
    -0.5,
    "",
    "x",
    "../x",
    [],
    {},
    [[1]],
    {"x": 1},
)
RIGHT, REFUSED, OTHER, TRACEBACK, HANGS = (
    "loaded as it was",
    "refused",
    "loaded as another",
    "traceback",
    "hangs",
)
DIED, LARGE = "interpreter died", "more than 1 GiB"
DEFECTS = (OTHER, TRACEBACK, HANGS, DIED, LARGE)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Other bytes than ``content``, which has some: bytes changed anywhere, or a value of JSON
    replaced by another.
    """
    while (
        found := _json(content, draw) if draw.random() < 0.5 else _bytes(content, draw)
    ) == content:
        pass
    return found


def _bytes(content: bytes, draw: random.Random) -> bytes:
    """Bytes that were flipped, cut, put in, left out, doubled or zeroed."""
    begin = draw.randrange(len(content))
    end = min(len(content), begin + draw.choice((1, 1, 2, 8, 100)))
    before, middle, after = content[:begin], content[begin:end], content[end:]
    match draw.randrange(6):
        case 0:
            return before + bytes(draw.randrange(256) for _ in middle) + after
        case 1:
            return before
        case 2:
            return before + draw.randbytes(draw.randrange(1, 9)) + middle + after
        case 3:
            return before + after
        case 4:
            return before + middle * 2 + after
        case _:
            return before + bytes(len(middle)) + after


def _json(content: bytes, draw: random.Random) -> bytes:
    """A JSON document with one value replaced, left out or renamed; other content is damaged by its
    bytes.
    """
    try:
        document = json.loads(content)
    except ValueError:
        return _bytes(content, draw)
    places = list(_places(document))
    if not places:
        return _bytes(content, draw)
    holder, key = draw.choice(places)
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
            holder[key] += draw.choice((-1, 1, 1000))
        case _:
            holder[key] = draw.choice(ODD)
    return json.dumps(document).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every value within a document as the object or list that holds it, and its key there."""
    keys = (
        value.keys()
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


class _TooLongError(BaseException):
    """A read that took too long; no handler of exceptions may catch it."""


def _stop(*_: Any) -> None:
    raise _TooLongError


def trial(form: Format, folder: Path, right: Any, seed: int) -> tuple[str, str]:
    """Damage one file of a sample, read, and put the file back; return what came of it, and the
    error in short.
    """
    draw = random.Random(f"{form.name} {seed}")
    path = folder / draw.choice(form.files)
    content = path.read_bytes()
    former = signal.signal(signal.SIGALRM, _stop)
    try:
        path.write_bytes(damaged(content, draw))
        signal.alarm(LIMIT)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
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
    """Try the seeds below ``count`` in a process of their own; return what came of them, and the
    defects.
    """
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
