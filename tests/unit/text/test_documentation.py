"""English from the installations of Python and NumPy."""

from __future__ import annotations

import inspect
import platform
from pathlib import Path

import numpy as np
import pytest

from hebblm.errors import UserError
from hebblm.text import documentation
from hebblm.text.corpora import resolve
from hebblm.text.documentation import paragraphs, reads_like_prose, tokens_of


@pytest.mark.parametrize("name", ["pydoc", "numpy"])
def test_the_installation_gives_enough_prose_in_three_splits(name: str) -> None:
    corpus = resolve(name)
    tokens = {
        split: sum(len(line.split()) + 1 for line in corpus.lines(split)) for split in corpus.splits
    }
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
    text = "\n".join(
        line for split in ("train", "valid", "test") for line in resolve("numpy").lines(split)
    )
    assert "fundamental functions of trigonometry" in text  # numpy.sin, a ufunc


def test_docstrings_come_in_order_of_path_and_place(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "b" / "x.py").write_text('"""third"""\n')
    (tmp_path / "tests" / "x.py").write_text('"""never"""\n')
    (tmp_path / "a.py").write_text(
        '# text\n"""first"""\nclass A:\n    def f(self):\n        """second"""\n'
    )
    assert list(documentation._source_docstrings(tmp_path)) == ["first", "second", "third"]


def test_no_paragraph_stands_in_two_splits() -> None:
    corpus = resolve("numpy")
    lines = [line for split in corpus.splits for line in corpus.lines(split)]
    assert len(set(lines)) == len(lines)


def test_what_was_extracted_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    monkeypatch.setattr(
        documentation,
        "_pydoc",
        lambda: iter([f"This is sentence number {n}." for n in range(1000)]),
    )
    first = resolve("pydoc")
    monkeypatch.setattr(documentation, "_pydoc", lambda: pytest.fail("extracted again"))
    second = resolve("pydoc")
    assert next(iter(second.lines("test"))) == "This is sentence number 900 ."
    assert first.provenance == second.provenance


def test_an_installation_without_documentation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    monkeypatch.setattr(documentation, "_pydoc", lambda: iter(["Only one sentence is there."]))
    with pytest.raises(UserError, match="too little documentation for pydoc"):
        documentation.documentation_sources("pydoc")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def prose(text: str) -> list[str]:
    return list(paragraphs(inspect.cleandoc(text)))


def test_a_numpy_docstring_leaves_its_sentences() -> None:
    assert prose("""
        hypot(x1, x2, /, out=None)

        Return the length of the hypotenuse, given the ``legs`` of a triangle.

        Parameters
        ----------
        x1, x2 : array_like
            Leg of the triangle(s), see :func:`~numpy.sqrt`.
        out : ndarray, optional
            A location into which
            the result is stored.

        Examples
        --------
        The function works on arrays::

            def code(of):
                return the_function(is_left=out)

        >>> np.hypot(3*np.ones((3, 3)), 4*np.ones((3, 3)))
        array([[ 5.,  5.,  5.], and the rest of this is output

        The result is as long as the inputs are.
        """) == [
        "Return the length of the hypotenuse , given the legs of a triangle .",
        "Leg of the triangle ( s ) , see numpy.sqrt .",
        "A location into which the result is stored .",
        "The function works on arrays :",
        "The result is as long as the inputs are .",
    ]


def test_directives_tables_grammar_and_fields() -> None:
    assert prose("""
        .. math:: the sum of x

            is x in the sum of it

        .. note::

            The note is read by the user.

        ====== ======
        name   the meaning of it
        ====== ======

        stmt ::= "the" word of the grammar

        :param name: the name of the user
        * an item of the list
          that goes on
        * the next item
        """) == [
        "The note is read by the user .",
        "the name of the user",
        "* an item of the list that goes on",
        "* the next item",
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's a post-mortem.", ["It's", "a", "post-mortem", "."]),
        (
            "see os.path, e.g. 1.5 or f(x)",
            ["see", "os.path", ",", "e.g", ".", "1.5", "or", "f", "(", "x", ")"],
        ),
        ("**bold** and *thin* `x` at https://a.b/c", ["bold", "and", "thin", "x", "at"]),
        ("don\u2019t ... stop", ["don't", "...", "stop"]),
    ],
)
def test_words_and_marks_are_parted(text: str, tokens: list[str]) -> None:
    assert tokens_of(text) == tokens


def test_what_reads_like_prose() -> None:
    assert reads_like_prose(["The", "cat", "sat", "on", "the", "mat", "."])
    assert reads_like_prose(["Select-based", "waiting", "loop", "."])
    assert not reads_like_prose(["x", "=", "y", "+", "z", "(", "4", ")", "[", "1", "]"])
    assert not reads_like_prose(["alpha", "beta", "gamma"])
    assert not reads_like_prose(["the", "end"])
