"""English from the installations of Python and NumPy."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from hebblm.errors import UserError
from hebblm.text import documentation
from hebblm.text.corpora import resolve


@pytest.mark.parametrize("name", ["pydoc", "numpy"])
def test_the_installation_gives_enough_prose_in_three_splits(name: str) -> None:
    corpus = resolve(name)
    tokens = {split: sum(len(line.split()) + 1 for line in corpus.lines(split)) for split in corpus.splits}
    total = sum(tokens.values())
    assert total > 150_000
    assert 0.75 < tokens["train"] / total < 0.85
    assert min(tokens["valid"], tokens["test"]) > 0.07 * total
    assert corpus.min_count == 2
    versions = corpus.provenance["versions"]
    assert versions["python"] == platform.python_version()
    assert versions.get("numpy", np.__version__) == np.__version__
    assert not [line for split in corpus.splits for line in corpus.lines(split) if "> > >" in line]


def test_numpy_documents_what_is_written_in_c() -> None:
    text = "\n".join(line for split in ("train", "valid", "test") for line in resolve("numpy").lines(split))
    assert "fundamental functions of trigonometry" in text  # numpy.sin, a ufunc


def test_docstrings_come_in_order_of_path_and_place(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "b" / "x.py").write_text('"""third"""\n')
    (tmp_path / "tests" / "x.py").write_text('"""never"""\n')
    (tmp_path / "a.py").write_text('# text\n"""first"""\nclass A:\n    def f(self):\n        """second"""\n')
    assert list(documentation._source_docstrings(tmp_path)) == ["first", "second", "third"]


def test_no_paragraph_stands_in_two_splits() -> None:
    corpus = resolve("numpy")
    lines = [line for split in corpus.splits for line in corpus.lines(split)]
    assert len(set(lines)) == len(lines)


def test_what_was_extracted_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    monkeypatch.setattr(documentation, "_pydoc", lambda: iter([f"This is sentence number {n}." for n in range(1000)]))
    first = resolve("pydoc")
    monkeypatch.setattr(documentation, "_pydoc", lambda: pytest.fail("extracted again"))
    second = resolve("pydoc")
    assert next(iter(second.lines("test"))) == "This is sentence number 900 ."
    assert first.provenance == second.provenance


def test_an_installation_without_documentation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    monkeypatch.setattr(documentation, "_pydoc", lambda: iter(["Only one sentence is there."]))
    with pytest.raises(UserError, match="too little documentation for pydoc"):
        documentation.documentation_sources("pydoc")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
