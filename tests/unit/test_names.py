"""Each class of the package has a name of its own, so that a name says which one is meant."""

from __future__ import annotations

import ast
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_no_two_classes_share_a_name() -> None:
    files = [path for package in ("hebblm", "awd_lstm") for path in (ROOT / package).rglob("*.py")]
    names = Counter(
        node.name
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["hebblm", "hebblm.memory", "hebblm.adapt.functional"])
def test_public_names_are_listed_before_they_are_loaded(package: str) -> None:
    module = import_module(package)
    assert {*module.__all__, "__name__"} <= {*dir(module)}
