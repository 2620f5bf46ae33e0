"""English that every machine has: the documentation inside the Python and NumPy installations."""

from __future__ import annotations

import ast
import importlib
import inspect
import platform
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.files import atomic_path, hash_of, sha256
from hebblm.locks import held
from hebblm.text import prose
from hebblm.text.manifest import SPLITS
from hebblm.text.sources import FileLines, LineSource

CHUNK_LINES = 100
SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "ensurepip")
)
# fmt: off
C_MODULES = (
    "array", "binascii", "builtins", "cmath", "collections", "errno", "functools", "gc", "io", "itertools",
    "marshal", "math", "mmap", "operator", "os", "select", "signal", "struct", "sys", "time", "unicodedata",
    "weakref", "zlib",
)
NUMPY_MODULES = (
    "numpy", "numpy.char", "numpy.dtypes", "numpy.exceptions", "numpy.fft", "numpy.lib", "numpy.linalg",
    "numpy.ma", "numpy.polynomial", "numpy.random", "numpy.rec", "numpy.strings",
)
# fmt: on
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documentation_sources(name: str) -> tuple[dict[str, LineSource], dict[str, Any]]:
    """Splits of ``pydoc`` or ``numpy`` and the versions they came from.

    What was extracted is kept in the user's cache, under a name that changes with the installation and with the way of
    extraction.
    """
    versions = {"python": platform.python_version()} | ({"numpy": np.__version__} if name == "numpy" else {})
    code = [sha256(Path(str(module.__file__))) for module in (prose, sys.modules[__name__])]
    key = hash_of([versions, sysconfig.get_paths()["stdlib"], np.__file__ if name == "numpy" else None, code])
    folder = cache_dir() / "documentation" / f"{name}-{key}"
    if not folder.is_dir():
        with held(folder, f"the text of {name}"):
            if not folder.is_dir():  # another process may have written it meanwhile
                _write(extract(name), folder)
    return {split: FileLines.of(folder / f"{split}.txt") for split in SPLITS}, {"versions": versions}


def _write(parts: dict[str, list[str]], folder: Path) -> None:
    with atomic_path(folder, directory=True) as temporary:
        for split, lines in parts.items():
            text = "".join(f"{line}\n" for line in lines)
            (temporary / f"{split}.txt").write_text(text, encoding="utf-8")


def extract(name: str) -> dict[str, list[str]]:
    """Paragraphs of ``pydoc`` or ``numpy`` by split.

    Of every ten runs of 100 paragraphs, the ninth goes to valid and the tenth to test, so that each split
    covers every part of the documentation. A paragraph that several docstrings share is kept where it stands first:
    repeated, it would stand in training and test alike.
    """
    docstrings = _pydoc() if name == "pydoc" else _numpy()
    lines = list(dict.fromkeys(line for text in dict.fromkeys(docstrings) for line in prose.paragraphs(text)))
    if len(lines) < 10 * CHUNK_LINES:
        raise UserError(f"this installation holds too little documentation for {name}; use another corpus")
    chunks = [lines[start : start + CHUNK_LINES] for start in range(0, len(lines), CHUNK_LINES)]
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    for number, chunk in enumerate(chunks):
        splits[{8: "valid", 9: "test"}.get(number % 10, "train")] += chunk
    return splits


def _pydoc() -> Iterator[str]:
    """Standard library's docstrings in order of path, those written in C, ``help()``'s topics."""
    yield from _source_docstrings(Path(sysconfig.get_paths()["stdlib"]))
    for name in C_MODULES:
        yield from _runtime_docstrings(importlib.import_module(name))
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    for topic in sorted(topics):
        yield topics[topic]


def _numpy() -> Iterator[str]:
    """Docstrings of NumPy's sources in order of path, then those of what is written in C."""
    yield from _source_docstrings(Path(np.__file__).parent)
    for name in NUMPY_MODULES:
        yield from _runtime_docstrings(importlib.import_module(name))


def _source_docstrings(root: Path) -> Iterator[str]:
    """Docstrings of all sources below a folder, in order of path and of place."""
    files = (path for path in root.rglob("*.py") if SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1]))
    for path in sorted(files, key=lambda path: path.relative_to(root).as_posix()):
        with tokenize.open(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(stream.read())
        nodes = [node for node in ast.walk(tree) if isinstance(node, Documented)]
        for node in sorted(nodes, key=lambda node: 0 if isinstance(node, ast.Module) else node.lineno):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _runtime_docstrings(module: ModuleType) -> Iterator[str]:
    """Docstrings of a module's public members and of their members."""
    for name in sorted(vars(module)):
        # What NumPy keeps for old callers warns on access; its text is not documentation of this version.
        if name.startswith("_") or isinstance(vars(module)[name], ModuleType):
            continue
        member = vars(module)[name]
        yield from _cleaned(member)
        if inspect.isclass(member):
            for attribute in sorted(vars(member)):
                if not attribute.startswith("_"):
                    yield from _cleaned(vars(member)[attribute])


def _cleaned(member: object) -> Iterator[str]:
    """A member's own docstring, if it has one."""
    docstring = getattr(member, "__doc__", None)
    if isinstance(docstring, str) and docstring is not type(member).__doc__:
        yield inspect.cleandoc(docstring)
