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

from hebblm.errors import UserError
from hebblm.runtime.folders import cache_dir

VARIABLE = "HEBBLM_KERNELS"
FORMS = ("bfloat16", "float32", "torch")
"""Compiled, with products of bfloat16 where these are exact; compiled, in float32 alone; plain."""
_lock = Lock()


@cache
def form() -> str:
    """Return the form that this process computes in: ``$HEBBLM_KERNELS``, or the fastest one.

    Raises:
        UserError: an unknown form, or a compiled one without numba.
    """
    wanted = os.environ.get(VARIABLE) or None
    installed = find_spec("numba") is not None
    if wanted is None:
        wanted = FORMS[0] if installed else "torch"
    if wanted not in FORMS:
        raise UserError(f"{VARIABLE}={wanted} is no form; choose {', '.join(FORMS)}")
    if wanted != "torch" and not installed:
        raise UserError(
            f"{VARIABLE}={wanted} needs numba; pip install 'hebblm[fast]', or choose "
            f"{VARIABLE}=torch"
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
    """Return the folder of the compiled kernels: each version of their code has its own."""
    code = hashlib.sha256(version("numba").encode())
    for path in sorted(Path(__file__).with_name("compiled").glob("*.py")):
        code.update(path.read_bytes())
    return cache_dir() / "kernels" / code.hexdigest()[:16]


def prepare(tell: Callable[[str], None]) -> None:
    """Compile the kernels if this process will need them and they are not compiled yet.

    Args:
        tell: is given one line before a compilation, which takes half a minute.
    """
    if not is_compiled():
        return
    done = folder() / "compiled"
    if not done.exists():
        tell(
            "compile the fast kernels: once, in about half a minute; "
            f"{VARIABLE}=torch goes without them"
        )
    for name in ("rows", "growth", "newton"):
        compiled(name)
    if not done.exists():
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()


def compiled(name: str) -> ModuleType:
    """Return a module of kernels, whose code numba keeps in :func:`folder`."""
    from numba.core import config

    with _lock:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder())
        try:
            return import_module(f"hebblm.kernels.compiled.{name}")
        finally:
            config.CACHE_DIR = before
