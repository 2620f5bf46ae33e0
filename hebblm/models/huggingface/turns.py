"""A model that several threads read, and its owner with them: one at a time, in evaluation mode, and left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

_LOCKS: WeakKeyDictionary[Any, AbstractContextManager[Any]] = WeakKeyDictionary()
"""By module, not by what reads it: of these there may be several, and copies, which could not have a lock in them."""


@contextmanager
def turn(model: Any) -> Iterator[None]:
    """Have a model alone among those that read it, in evaluation mode; behind it each module has its own mode again.

    Args:
        model: of ``transformers``.
    """
    with _LOCKS.setdefault(model, RLock()):  # one step, between threads as well
        training = [module for module in model.modules() if module.training]
        try:
            for module in training:
                module.training = False
            yield
        finally:
            for module in training:
                module.training = True
