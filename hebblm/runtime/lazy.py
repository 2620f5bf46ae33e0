"""Packages that import a name on first use, so that a command's help does not wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str, *modules: str) -> Callable[[str], Any]:
    """Return a package's ``__getattr__`` (PEP 562), which finds the names of its ``__all__`` in
    some of its modules.

    Its ``__dir__`` then lists these names as well.
    """

    def get(name: str) -> Any:
        namespace = vars(sys.modules[package])
        if name in namespace["__all__"]:
            for module in modules:
                loaded = import_module(f"{package}.{module}")
                # A package may export the name lazily as well.
                if name in vars(loaded) or name in getattr(loaded, "__all__", ()):
                    return namespace.setdefault(name, getattr(loaded, name))
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    vars(sys.modules[package])["__dir__"] = lambda: sorted(
        {*(names := vars(sys.modules[package])), *names["__all__"]}
    )
    return get
