"""Ctrl-C: what a command saves and prints before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GOES_ON = "finished parts are kept; run the same command to continue"


@contextmanager
def handled(act: Callable[[int, Any], None]) -> Iterator[None]:
    """Call ``act`` on Ctrl-C while the block runs, unless Ctrl-C is ignored or handled already."""
    former = signal.getsignal(signal.SIGINT)
    ours = (
        threading.current_thread() is threading.main_thread()
        and former is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, act)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, former)


@contextmanager
def interrupted(message: str) -> Iterator[None]:
    """Report what the command keeps if Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(message) from error
