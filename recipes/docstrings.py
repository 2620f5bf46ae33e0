"""Write the documentation strings of an installed package as one text: of modules, classes, methods and functions.

Usage: python recipes/docstrings.py PACKAGE FILE
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from hebblm.files import write_text

LEFT_OUT = ("test", "conftest", "_build", "examples")  # modules whose names start so


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """Yield a package and its modules in the order of their names, but for those that cannot be loaded."""
    yield package
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None)
    for name in sorted(module.name for module in found):
        if not any(part.startswith(LEFT_OUT) for part in name.split(".")):
            try:
                yield importlib.import_module(name)
            except Exception as error:  # whatever a module of someone else's does when it is loaded
                print(f"{name} is left out: {error}", file=sys.stderr)


def documented(module: ModuleType) -> Iterator[object]:
    """Yield a module and what it defines itself and does not hide, each class before its methods."""
    yield module
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield value
        elif inspect.isclass(value):
            yield value
            yield from (
                method for key, method in sorted(vars(value).items()) if inspect.isfunction(method) and key[0] != "_"
            )


def main(package: str, file: Path) -> None:
    """Write the text, each string once."""
    objects = (item for module in modules(importlib.import_module(package)) for item in documented(module))
    write_text(file, "\n\n".join(dict.fromkeys(filter(None, map(inspect.getdoc, objects)))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
