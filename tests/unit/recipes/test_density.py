"""The count of dense forms in a program."""

from __future__ import annotations

from pathlib import Path

from recipes import density

PROGRAM = '''"""A program."""

a, b = 1, [*range(3), *range(2)]  # a comment
c = {**{}, "d": [x for x in b] if a else {y for y in b}}
first, *rest = b
call(*b)
long = "{long}"
'''


def test_each_form_is_counted() -> None:
    found = density.count(PROGRAM.replace("{long}", "x" * 100))
    assert found == {
        "conditional expressions": 1,
        "comprehensions": 2,
        "starred unpackings": 3,
        "tuple assignments": 1,
        "lines over 100 characters": 1,
        "comment lines": 1,
    }


def test_densities_are_per_thousand_lines_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1 if b else 2\n" + "a = 1\n" * 99)
    (tmp_path / "b.py").write_text("# nothing\n" * 100)
    found = density.densities(tmp_path.glob("*.py"))
    assert found["conditional expressions"] == 5.0
    assert found["comment lines"] == 500.0
    assert "outside" in density.table(found)
