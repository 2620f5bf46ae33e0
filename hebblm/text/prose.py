"""Docstrings to prose: markup, code, doctest sessions, tables and signatures taken out."""

from __future__ import annotations

import re
from collections.abc import Iterator

MIN_WORDS = 3
MIN_SHARE_OF_WORDS = 0.6

# Directives whose body is text like any other; the body of all others (code, math, figures) is skipped.
# fmt: off
PROSE_DIRECTIVES = frozenset((
    "note", "warning", "tip", "hint", "important", "caution", "attention", "seealso", "versionadded",
    "versionchanged", "deprecated",
))
FUNCTION_WORDS = frozenset((
    "the", "a", "an", "of", "to", "is", "are", "be", "in", "on", "for", "and", "or", "not", "with", "by",
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
    r"::=|^ *(?:def|class|import|from \S+ import|return|assert|raise|try|while|elif) ?[\w(:]*.*[:=(]$"
)
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?: *<[^`]*>)?`")
_LITERAL = re.compile(r"``([^`]*)``|`([^`]+)`_*|\*\*([^*\s][^*]*)\*\*|(?<![\w*])\*([^*\s][^*]*)\*")
_URL = re.compile(r"<?https?://\S+")
_TOKEN = re.compile(r"\w+(?:[.'-]\w+)*|\.\.\.|[^\w\s]")


def paragraphs(docstring: str) -> Iterator[str]:
    """Prose of a docstring without common indentation, one paragraph at a time.

    Its words and punctuation marks stand between single spaces, in their own case. Left out are doctest sessions up to
    the next blank line, blocks indented after ``::``, directives without text, tables, headings with their rules,
    grammar, signatures and parameter declarations, and any paragraph that does not read like English.
    """
    for block in _blocks(docstring.expandtabs()):
        tokens = tokenize(" ".join(_FIELD.sub("", line.strip()) for line in block))
        if reads_like_prose(tokens):
            yield " ".join(tokens)


def tokenize(text: str) -> list[str]:
    """Words, dotted names, numbers and punctuation marks; markup and addresses are dropped."""
    text = _URL.sub(" ", _ROLE.sub(r"\1", text))
    text = _LITERAL.sub(lambda match: next(group for group in match.groups() if group is not None), text)
    return _TOKEN.findall(text.replace("`", " ").replace("\u2019", "'"))


def reads_like_prose(tokens: list[str]) -> bool:
    """Whether most tokens are words, and they end like a sentence or have a function word."""
    words = [token.lower() for token in tokens if token.replace("-", "").replace("'", "").isalpha()]
    names = sum(token[0].isalnum() or token[0] == "_" for token in tokens)
    if len(words) < MIN_WORDS or len(words) < MIN_SHARE_OF_WORDS * max(names, len(tokens) - names):
        return False
    return tokens[-1] in ".!?:" or not FUNCTION_WORDS.isdisjoint(words)


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Runs of lines that may be prose: blank lines, list items and declarations part them."""
    block: list[str] = []
    skip_deeper_than: int | None = None
    in_doctest = False
    for line in [*docstring.split("\n"), ""]:
        text = line.strip()
        indent = _indent(line)
        if not text:
            in_doctest = False
            yield from _finished(block)
            block = []
            continue
        if skip_deeper_than is not None and indent > skip_deeper_than:
            continue
        skip_deeper_than = None
        if in_doctest:
            continue
        directive = _DIRECTIVE.match(text)
        if text.startswith((">>>", "...")):
            in_doctest = True
        elif _RULE.match(text):
            block = block[:-1]  # what stands above a rule is a heading
        elif directive:
            if directive["name"] not in PROSE_DIRECTIVES:
                skip_deeper_than = indent
        elif not _declares(text, new=not block or indent < _indent(block[-1])):
            if _ITEM.match(text):
                yield from _finished(block)
                block = []
            opens_code = text.endswith("::")
            block.append(line.rstrip()[:-1] if opens_code else line)
            if not opens_code:
                continue
            skip_deeper_than = indent
        yield from _finished(block)
        block = []


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


def _declares(text: str, *, new: bool) -> bool:
    """Whether a line declares a signature or, where a declaration can begin, a parameter."""
    return bool(_SIGNATURE.match(text)) or (new and bool(_PARAMETER.match(text)))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
