"""README's numbers are those of the committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_results", ROOT / "recipes" / "readme_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_tables_are_those_of_the_committed_results() -> None:
    script = _script()
    text = script.README.read_text(encoding="utf-8")
    for mark in (script.BEGIN, script.END, script.BENCH_BEGIN, script.BENCH_END):
        assert text.count(mark) == 1
    assert script.render(text) == text, "run python -m recipes.readme_results"


def test_a_changed_number_is_noticed() -> None:
    script = _script()
    text = script.README.read_text(encoding="utf-8")
    head, table = text.split(script.BEGIN)
    number = next(word for word in table.split() if word.replace(".", "").isdigit() and "." in word)
    assert script.render(f"{head}{script.BEGIN}{table.replace(number, '0.123', 1)}") == text
