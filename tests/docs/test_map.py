"""The map of CONTRIBUTING from a token to its score: its files are there, and each imports the
next.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(path: Path) -> set[str]:
    """Modules that a file imports, at the top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names


def test_the_files_of_the_map_import_each_other_in_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("in eight files")[2].partition("##")[0]
    files = [ROOT / name for name in re.findall(r"^\| `([\w/]+\.py)` \|", rows, re.MULTILINE)]
    assert len(files) == 8
    for path, following in pairwise(files):
        module = ".".join(following.relative_to(ROOT).with_suffix("").parts)
        names = imported(path)  # a package gives what its modules define
        assert names & {module, module.rpartition(".")[0]}, f"{path} does not import {module}"
