"""Ctrl-C: what is saved before it ends a piece of work, and what is told of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GOES_ON = "finished parts are kept; run the same command to continue"


@contextmanager
def handled(act: Callable[[int, Any], None]) -> Iterator[None]:
    """Let Ctrl-C call ``act`` while the block runs; where it is ignored or handled otherwise, it stays so."""
    former = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and former is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, act)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, former)


@contextmanager
def interrupted(message: str) -> Iterator[None]:
    """Let a command say what is kept, where Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(message) from error
