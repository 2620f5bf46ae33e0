"""Check that README and docs stay short, and that they, docstrings and messages stay plain.

python -m recipes.plain

prints every number above its limit and every odd word, and exits with status 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("hebblm", "awd_lstm", "recipes")
NAMED = ("hebblm/", "awd_lstm/")  # where identifiers are checked
BELOW_COMMANDS = "hebblm/"  # where messages name arguments, which a command turns into options
WITH_OPTIONS = (
    "hebblm/cli/",
    "hebblm/integrations/",  # names options of lm-evaluation-harness
    "hebblm/runtime/wording.py",  # turns one into the other
)
COMMAND = re.compile(r"\b[a-z]+-[a-z-]+(?: --[a-z-]+(?: [^\s;,]+)?)+")  # whole, with its options
OPTION = re.compile(r"(?<![\w-])--[a-z]")
SAYING = (
    "UserError",
    "CheckpointError",
    "log",
    "log_once",
    "print_line",
)  # calls whose text a user reads
# a docstring names the thing, or what a call does
OPENING = re.compile(r"(?:Return what|Say|Tell|Let) ")
MOST_WORDS = 24_000  # in README and docs, tables and code included
MEDIAN_WORDS, LONGEST_WORDS = 18, 40  # of a sentence
ODD = {
    r"\bbehind\b": "after, or worse than",
    r"\bbeside\b": "next to, with, or compared with",
    r"(?<!there )\b(?:is|are) none\b": "no such thing exists",
    r"(?<!there )\b(?:is|are) no (?:part|result|achievement|text|model|word|name)\b": "is not a",
    r"\b(?:is|are) of no\b": "does not belong, or has no",
    r"\bset for nothing\b": "has no effect",
    r"\bof which\b": "whose, or a second sentence",
    r"\b(?:is|are) told\b": "prints, says, or shows",
}
"""Patterns of words that nobody says aloud, and what to write in their place."""
VAGUE = {
    **dict.fromkeys(("each", "own", "found", "made", "some", "here"), "what it is"),
    "aside": "preserve_state",
    "beside": "extra, others, or what it is",
    "closeness": "kernel_weight",
    "held": "what it is",
    "pull": "l2_to_base",
    "rooted": "signed_sqrt",
    "say": "log",
    "side_by_side": "in_parallel, as_streams or interleaved",
    "told": "progress_enabled",
}
"""Identifiers that do not say what they hold or do, and the name to give instead."""
WRITTEN = re.compile(r"<!-- (\S+): written by .*?<!-- end of \1 -->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
APART = re.compile(r"^(?:#|\||:::|---|!\[|\s*(?:[-*]|\d+\.)\s)")  # begins a paragraph of its own
END = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9X`])")


def pages() -> list[Path]:
    """Return README and the pages of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def programs() -> list[Path]:
    """Return the Python files of the packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items that a person wrote: no code, tables, headings or written
    blocks.
    """
    text = LINK.sub(r"\1", CODE.sub("X", FENCE.sub("\n", WRITTEN.sub("\n", text))))
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if (not line.strip() or APART.match(line)) and lines:
            yield " ".join(lines)
            lines = []
        if line.strip() and not re.match(r"#|\||:::|---|!\[", line):
            lines.append(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", line).strip())


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; a piece of code counts as one word."""
    return [
        sentence
        for paragraph in paragraphs(text)
        for sentence in END.split(paragraph)
        if len(sentence.split()) > 1
    ]


def odd_words(text: str) -> list[str]:
    """Return the odd words of a text, each with what to write in its place."""
    text = " ".join(CODE.sub("X", FENCE.sub("\n", WRITTEN.sub("\n", text))).split())
    return [
        f"{match[0]!r}: write {plain}"
        for odd, plain in ODD.items()
        for match in re.finditer(odd, text, re.I)
    ]


def spoken(program: str) -> Iterator[tuple[int, bool, str]]:
    """Yield line and text of the docstrings and messages of a program, and whether it is a
    docstring.
    """

    def texts(node: ast.expr) -> list[str]:
        parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
        return [part for part in parts if isinstance(part, str)]

    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, True, "".join(texts(node.value))
        elif isinstance(node, ast.Call):
            said = node.args if getattr(node.func, "id", "") in SAYING else []
            helped = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
            for argument in [*said, *helped]:
                yield node.lineno, False, " X ".join(texts(argument))


def options_in(program: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of a program that name an option of a command, other than
    within a whole command.
    """
    inside: set[int] = set()  # parts of strings with values in them, which count as one text
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            text = str(node.value)
        else:
            continue
        rest = COMMAND.sub("", " ".join(text.split()))
        if " " in rest and OPTION.search(rest):
            yield node.lineno, rest


def vague_names(program: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the variables, arguments, functions and attributes that a program
    gives a vague name.
    """
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        else:
            continue
        if name in VAGUE:
            yield node.lineno, name


def program_faults(programs: dict[str, str]) -> list[str]:
    """Return in one line each the odd words in docstrings and messages of some programs, and their
    vague identifiers.
    """
    found = []
    for name, program in programs.items():
        for line, documents, text in spoken(program):
            odd = odd_words(re.sub(r"``.*?``|\bNone\b", "X", text))
            if documents and (opening := OPENING.match(text)):
                odd.append(f"{opening[0].strip()!r}: write a verb that names what the call does")
            found += [f"{name}:{line}: {each}" for each in odd]
        if name.startswith(NAMED):
            for line, identifier in vague_names(program):
                found.append(f"{name}:{line}: {identifier}: name it {VAGUE[identifier]}")
        if name.startswith(BELOW_COMMANDS) and not name.startswith(WITH_OPTIONS):
            for line, text in options_in(program):
                found.append(f"{name}:{line}: name an argument, not an option: {text[:60]}")
    return found


def faults(texts: dict[str, str]) -> list[str]:
    """Return in one line each what is above its limit in some pages, by name."""
    words = sum(len(text.split()) for text in texts.values())
    found = [f"{words:,} words in all, at most {MOST_WORDS:,}"] if words > MOST_WORDS else []
    for name, text in texts.items():
        said = sentences(text)
        median = statistics.median(len(sentence.split()) for sentence in said) if said else 0
        if median > MEDIAN_WORDS:
            found.append(
                f"{name}: the median sentence has {median:g} words, at most {MEDIAN_WORDS}"
            )
        long = [sentence for sentence in said if len(sentence.split()) > LONGEST_WORDS]
        found += [
            f"{name}: a sentence of {len(sentence.split())} words: {sentence}" for sentence in long
        ]
        found += [f"{name}: {odd}" for odd in odd_words(text)]
    return found


def main() -> int:
    def read(paths: Iterable[Path]) -> dict[str, str]:
        return {
            path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths
        }

    found = faults(read(pages())) + program_faults(read(programs()))
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
