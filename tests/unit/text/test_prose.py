"""Docstrings to prose: what stays and what goes."""

from __future__ import annotations

import inspect

import pytest

from hebblm.text.prose import paragraphs, reads_like_prose, tokenize


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
    assert tokenize(text) == tokens


def test_what_reads_like_prose() -> None:
    assert reads_like_prose(["The", "cat", "sat", "on", "the", "mat", "."])
    assert reads_like_prose(["Select-based", "waiting", "loop", "."])
    assert not reads_like_prose(["x", "=", "y", "+", "z", "(", "4", ")", "[", "1", "]"])
    assert not reads_like_prose(["alpha", "beta", "gamma"])
    assert not reads_like_prose(["the", "end"])
