"""English that every machine has: the documentation inside the Python and NumPy installations."""

from __future__ import annotations

import ast
import importlib
import inspect
import platform
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import atomic_path, hash_of, sha256
from hebblm.io.locks import file_lock
from hebblm.text.sources import SPLITS, FileLines, LineSource

CHUNK_LINES = 100
SKIPPED_FOLDERS = frozenset(
    (
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "site-packages",
        "dist-packages",
        "__pycache__",
        "ensurepip",
    )
)
# fmt: off
C_MODULES = (
    "array", "binascii", "builtins", "cmath", "collections", "errno", "functools", "gc", "io",
    "itertools",
    "marshal", "math", "mmap", "operator", "os", "select", "signal", "struct", "sys", "time",
    "unicodedata",
    "weakref", "zlib",
)
NUMPY_MODULES = (
    "numpy", "numpy.char", "numpy.dtypes", "numpy.exceptions", "numpy.fft", "numpy.lib",
    "numpy.linalg",
    "numpy.ma", "numpy.polynomial", "numpy.random", "numpy.rec", "numpy.strings",
)
# fmt: on
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documentation_sources(name: str) -> tuple[dict[str, LineSource], dict[str, Any]]:
    """Return the splits of ``pydoc`` or ``numpy`` and the versions they came from.

    The extracted text is kept in the user's cache, under a name that changes with the installation
    and with the way of extraction.
    """
    versions = {"python": platform.python_version()} | (
        {"numpy": np.__version__} if name == "numpy" else {}
    )
    origin = [sysconfig.get_paths()["stdlib"], np.__file__ if name == "numpy" else None]
    key = hash_of([versions, *origin, sha256(Path(__file__))])
    folder = cache_dir() / "documentation" / f"{name}-{key}"
    if not folder.is_dir():
        with file_lock(folder, f"the text of {name}"):
            if not folder.is_dir():  # another process may have written it meanwhile
                parts = extract(name)
                with atomic_path(folder, directory=True) as temporary:
                    for split, lines in parts.items():
                        text = "".join(f"{line}\n" for line in lines)
                        (temporary / f"{split}.txt").write_text(text, encoding="utf-8")
    return {split: FileLines.of(folder / f"{split}.txt") for split in SPLITS}, {
        "versions": versions
    }


def extract(name: str) -> dict[str, list[str]]:
    """Extract paragraphs of ``pydoc`` or ``numpy`` by split.

    Of every ten runs of 100 paragraphs, the ninth goes to valid and the tenth to test, so that each
    split covers every part of the documentation. A paragraph that several docstrings share is kept
    only once: repeated, it would be in both training and test.
    """
    docstrings = _pydoc() if name == "pydoc" else _numpy()
    different: dict[str, None] = {}
    for text in dict.fromkeys(docstrings):
        different.update(dict.fromkeys(paragraphs(text)))
    lines = list(different)
    if len(lines) < 10 * CHUNK_LINES:
        raise UserError(
            f"this installation holds too little documentation for {name}; use another corpus"
        )
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
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        if not SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1]):
            continue
        with tokenize.open(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(stream.read())
        nodes = [node for node in ast.walk(tree) if isinstance(node, Documented)]
        for node in sorted(
            nodes, key=lambda node: 0 if isinstance(node, ast.Module) else node.lineno
        ):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _runtime_docstrings(module: ModuleType) -> Iterator[str]:
    """Docstrings of a module's public members and of their members."""
    for name in sorted(vars(module)):
        # What NumPy keeps for old callers warns on access; its text is not documentation of this
        # version.
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


MIN_WORDS = 3
MIN_SHARE_OF_WORDS = 0.6

# Directives whose body is text like any other; the body of all others (code, math, figures) is
# skipped.
# fmt: off
PROSE_DIRECTIVES = frozenset((
    "note", "warning", "tip", "hint", "important", "caution", "attention", "seealso",
    "versionadded",
    "versionchanged", "deprecated",
))
FUNCTION_WORDS = frozenset((
    "the", "a", "an", "of", "to", "is", "are", "be", "in", "on", "for", "and", "or", "not", "with",
    "by",
    "from", "as", "it", "this", "that", "if", "when", "which", "can", "will",
))
# fmt: on

_DIRECTIVE = re.compile(r"\.\. +(?:(?P<name>[\w-]+)::|\[|_)")
_RULE = re.compile(r"([=\-~^\"'*+#`.])\1{2,}$")
_TABLE_RULE = re.compile(r"[=\-+|: ]*(?:={3,}|-{3,})[=\-+|: ]*$")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)?(?: *-> *.+)?$|[\w.]+\(.*\) *[:;-]* *$")
_PARAMETER = re.compile(r"[*\w][\w, .*]* : +\S")
_FIELD = re.compile(r"^:\w+(?: [\w *]+)?: +")
_ITEM = re.compile(r"(?:[-*+\u2022]|\(?\w{1,2}[.)]) +\S")
_GRAMMAR = re.compile(
    r"::=|^ *(?:def|class|import|from \S+ import|return|assert|raise|try|while|elif) "
    r"?[\w(:]*.*[:=(]$"
)
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?: *<[^`]*>)?`")
_LITERAL = re.compile(r"``([^`]*)``|`([^`]+)`_*|\*\*([^*\s][^*]*)\*\*|(?<![\w*])\*([^*\s][^*]*)\*")
_URL = re.compile(r"<?https?://\S+")
_TOKEN = re.compile(r"\w+(?:[.'-]\w+)*|\.\.\.|[^\w\s]")


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the prose of a docstring without common indentation, one paragraph at a time.

    Single spaces separate its words and punctuation marks, in their own case. It leaves out doctest
    sessions up to the next blank line, blocks indented after ``::``, directives without text,
    tables, headings with their rules, grammar, signatures and parameter declarations, and any
    paragraph that does not read like English.
    """
    for block in _blocks(docstring.expandtabs()):
        tokens = tokens_of(" ".join(_FIELD.sub("", line.strip()) for line in block))
        if reads_like_prose(tokens):
            yield " ".join(tokens)


def tokens_of(text: str) -> list[str]:
    """Words, dotted names, numbers and punctuation marks; markup and addresses are dropped."""
    text = _URL.sub(" ", _ROLE.sub(r"\1", text))
    text = _LITERAL.sub(
        lambda match: next(group for group in match.groups() if group is not None), text
    )
    return _TOKEN.findall(text.replace("`", " ").replace("\u2019", "'"))


def reads_like_prose(tokens: list[str]) -> bool:
    """Whether most tokens are words, and they end like a sentence or have a function word."""
    words = [token.lower() for token in tokens if token.replace("-", "").replace("'", "").isalpha()]
    names = sum(token[0].isalnum() or token[0] == "_" for token in tokens)
    if len(words) < MIN_WORDS or len(words) < MIN_SHARE_OF_WORDS * max(names, len(tokens) - names):
        return False
    return tokens[-1] in ".!?:" or not FUNCTION_WORDS.isdisjoint(words)


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Yield runs of lines that may be prose, separated by blank lines, list items and
    declarations.
    """
    block: list[str] = []
    skip_deeper_than: int | None = None
    in_doctest = False
    for line in [*docstring.split("\n"), ""]:
        if not line.strip():
            in_doctest = False
            yield from _finished(block)
            block = []
            continue
        if skip_deeper_than is not None and _indent(line) <= skip_deeper_than:
            skip_deeper_than = None
        if in_doctest or skip_deeper_than is not None:
            continue
        kind = _kind_of(line, block)
        if kind in ("prose", "prose before code"):
            if _ITEM.match(line.strip()):
                yield from _finished(block)
                block = []
            if kind == "prose":
                block.append(line)
                continue
            block.append(line.rstrip()[:-1])
        elif kind == "rule":
            block = block[:-1]  # what stands above a rule is a heading
        in_doctest = kind == "doctest"
        if kind in ("prose before code", "directive without prose"):
            skip_deeper_than = _indent(line)
        yield from _finished(block)
        block = []


_Kind = Literal[
    "prose",
    "prose before code",
    "rule",
    "doctest",
    "directive with prose",
    "directive without prose",
    "declaration",
]


def _kind_of(line: str, block: list[str]) -> _Kind:
    """What a line after a block is, when it is neither blank nor code."""
    text = line.strip()
    if text.startswith((">>>", "...")):
        return "doctest"
    if _RULE.match(text):
        return "rule"
    directive = _DIRECTIVE.match(text)
    if directive and directive["name"] in PROSE_DIRECTIVES:
        return "directive with prose"
    if directive:
        return "directive without prose"
    if _declares(line, block):
        return "declaration"
    if text.endswith("::"):
        return "prose before code"
    return "prose"


def _declares(line: str, block: list[str]) -> bool:
    """Whether a line after a block is a signature or the declaration of a parameter."""
    text = line.strip()
    if _SIGNATURE.match(text):
        return True
    begins = not block or _indent(line) < _indent(block[-1])  # where a declaration can stand
    return begins and bool(_PARAMETER.match(text))


def _finished(block: list[str]) -> Iterator[list[str]]:
    """A block unless it is empty, a table or grammar."""
    if not block:
        return
    stripped = [line.strip() for line in block]
    if any(_TABLE_RULE.match(line) and " " in line for line in stripped):
        return
    if any("::=" in line or line.count("|") > 1 or _GRAMMAR.match(line) for line in stripped):
        return
    yield block


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
