"""One reader, several threads: each call takes its turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import update_wrapper
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from hebblm.runtime.blocks import settle_threads

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_LOCKS: WeakKeyDictionary[Any, AbstractContextManager[Any]] = WeakKeyDictionary()
"""Locks by reader, not within it: a copy needs a lock of its own, and a reader that forgets keeps
the one it holds.
"""


def turn(reader: object) -> AbstractContextManager[Any]:
    """Return the lock of a reader; the thread that has it may take it again, as a progress function
    does that asks.

    If Ctrl-C ends the wait for it, nothing was done.
    """
    settle_threads()
    return _LOCKS.setdefault(reader, RLock())  # one step, between threads as well


def in_turn(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Return the method of a reader for one thread at a time."""

    def taken(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        with turn(self):
            return method(self, *args, **options)

    update_wrapper(taken, method)

    return taken
