"""How dense Python is: per 1,000 lines, forms that say much in little space, and comments.

python -m recipes.density FOLDER...

prints a table for each folder, next to the range of other projects.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

LONG = 100  # characters of a line

ANCHORS = {
    "conditional expressions": (3.4, 12.0),
    "comprehensions": (5.0, 17.0),
    "starred unpackings": (0.5, 3.0),
    "tuple assignments": (0.4, 7.0),
    "lines over 100 characters": (12.0, 88.0),
    "comment lines": (51.0, 113.0),
}
"""Per 1,000 lines: lm-evaluation-harness 0.4.13 and peft 0.21.2 by this count, and a review of
nanochat, torchtune and river, which counted no comments."""


def count(program: str) -> Counter[str]:
    """Return how often each form of ``ANCHORS`` occurs in a program."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.IfExp):
            found["conditional expressions"] += 1
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            found["comprehensions"] += 1
        elif isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            found["starred unpackings"] += sum(isinstance(part, ast.Starred) for part in node.elts)
        elif isinstance(node, ast.Dict):
            found["starred unpackings"] += node.keys.count(None)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            found["tuple assignments"] += isinstance(node.targets[0], ast.Tuple)
    found["lines over 100 characters"] = sum(len(line) > LONG for line in program.splitlines())
    tokens = tokenize.generate_tokens(io.StringIO(program).readline)
    found["comment lines"] = sum(token.type == tokenize.COMMENT for token in tokens)
    return found


def densities(paths: Iterable[Path]) -> dict[str, float]:
    """Return the forms of ``ANCHORS`` in some files, per 1,000 lines."""
    total: Counter[str] = Counter()
    lines = 0
    for path in paths:
        program = path.read_text(encoding="utf-8")
        total += count(program)
        lines += len(program.splitlines())
    return {form: 1000 * total[form] / max(1, lines) for form in ANCHORS}


def table(found: dict[str, float]) -> str:
    """Return densities as lines, each next to the range of other projects."""
    lines = []
    for form, density in found.items():
        low, high = ANCHORS[form]
        outside = "" if low <= density <= high else "  outside"
        lines.append(f"  {form:26}{density:7.1f}   {low:g} to {high:g}{outside}")
    return "\n".join(lines)


def main(folders: list[str]) -> None:
    for folder in folders:
        print(f"{folder}, per 1,000 lines\n{table(densities(sorted(Path(folder).rglob('*.py'))))}")


if __name__ == "__main__":
    main(sys.argv[1:])
