"""The forms in which rows are computed: compiled by numba where it is installed, or plain torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from hebblm.errors import UserError
from hebblm.runtime.extras import install
from hebblm.runtime.folders import cache_dir

VARIABLE = "HEBBLM_KERNELS"
FORMS = ("bfloat16", "float32", "torch")
"""Compiled, with products of bfloat16 where these are exact; compiled, in float32 alone; plain."""
_lock = Lock()


@cache
def form() -> str:
    """Return the form that this process computes in: ``$HEBBLM_KERNELS``, or plain torch.

    Raises:
        UserError: an unknown form, or a compiled one without numba.
    """
    wanted = os.environ.get(VARIABLE) or "torch"
    installed = find_spec("numba") is not None
    if wanted not in FORMS:
        raise UserError(f"{VARIABLE}={wanted} is no form; choose {', '.join(FORMS)}")
    if wanted != "torch" and not installed:
        raise UserError(
            f"{VARIABLE}={wanted} needs numba; {install('fast')}, or choose {VARIABLE}=torch"
        )
    if wanted == "bfloat16" and not compiled("half").has_instruction():
        return "float32"
    return wanted


def description() -> str:
    """Return the form and what compiled it, for a run's provenance."""
    name = form()
    return name if name == "torch" else f"{name} by numba {version('numba')}"


def is_compiled() -> bool:
    """Return whether rows are computed by compiled kernels."""
    return form() != "torch"


def uses_bfloat16() -> bool:
    """Return whether products are taken in bfloat16 where they are exact."""
    return form() == "bfloat16"


@cache
def folder() -> Path:
    """Return the folder of the compiled kernels, in the user's cache or below ``$NUMBA_CACHE_DIR``.

    Each version of their code has its own: numba knows of a changed file, but not of what it
    imports.
    """
    code = hashlib.sha256(version("numba").encode())
    for path in sorted(Path(__file__).with_name("compiled").glob("*.py")):
        code.update(path.read_bytes())
    named = os.environ.get("NUMBA_CACHE_DIR")
    above = Path(named) if named else cache_dir() / "kernels"
    return above / code.hexdigest()[:16]


def tell_with(tell: Callable[[str], None]) -> None:
    """From now on give this function one line before a compilation that takes about a minute."""
    global _tell
    _tell = tell


def compiled(name: str) -> ModuleType:
    """Return a module of kernels, whose code numba keeps in :func:`folder`."""
    if name in _loaded:
        return _loaded[name]
    from numba.core import config

    numba: Any = config
    with _lock:
        done = folder() / f"{name}.done"
        if name == "newton" and not done.exists():
            _tell(f"compile the fast form, once, in about a minute; {VARIABLE}=torch does without")
        before = numba.CACHE_DIR
        numba.CACHE_DIR = str(folder())
        try:
            module = import_module(f"hebblm.kernels.compiled.{name}")
        finally:
            numba.CACHE_DIR = before
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
        _loaded[name] = module
    return module


def _silent(line: str) -> None:
    """Leave a line out, until :func:`tell_with` is called."""


_loaded: dict[str, ModuleType] = {}
_tell: Callable[[str], None] = _silent
