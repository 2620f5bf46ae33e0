"""One reader, several threads: each call takes its turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch

from hebblm.runtime.blocks import settle_threads

_LOCKS: WeakKeyDictionary[Any, AbstractContextManager[Any]] = WeakKeyDictionary()
"""Locks by reader, not within it: a copy needs a lock of its own, and a reader that forgets keeps
the one it holds.
"""


@contextmanager
def turn(reader: object) -> Iterator[None]:
    """Keep other threads from a reader in the block; the thread that has it may take it again, as a
    progress function does that asks.

    The block leaves ``torch.inference_mode``: no later call could learn from its tensors. If Ctrl-C
    ends the wait, nothing was done.
    """
    settle_threads()
    lock = _LOCKS.setdefault(reader, RLock())  # one step, between threads as well
    with lock, torch.inference_mode(False):
        yield
