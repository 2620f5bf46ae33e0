"""A word that is forgotten is struck out whole, in each of its forms, and never out of another
word.
"""

from __future__ import annotations

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebblm.text.striking import struck

LETTERS = "aéE\u0301\u0928\u0940\u094d\u200c\u200d'\u2019._- 3\n\u0e01\u0e32\u7530\u304b\U0001f469"


@pytest.mark.parametrize(
    ("word", "text", "left"),
    [
        # combining marks and joiners belong to the word
        ("पर", "परी पर है", "परी है"),
        ("cafe", "cafe\u0301 cafe", "cafe\u0301"),
        ("می", "می\u200cخواهم می", "می\u200cخواهم"),
        ("क", "क्\u200dष क", "क्\u200dष"),
        ("👩", "👩\u200d👧 👩", "👩\u200d👧"),
        # the forms of one word
        ("café", "Cafe\u0301 CAFÉ café cafes", " cafes"),
        ("cafe\u0301", "Cafe\u0301 CAFÉ café cafe", " cafe"),
        ("strasse", "die Straße", "die"),
        ("STRASSE", "die straße", "die"),
        # letters, digits and underscores make another word
        ("list", "lists list_s 3list list", "lists list_s 3list"),
        ("get", "get_user get", "get_user"),
        # apostrophes and marks end a word
        ("can", "can't can", "'t"),
        ("can't", "can't can", " can"),
        ("amour", "l'amour l\u2019Amour", "l' l\u2019"),
        ("l'amour", "l'amour amour", " amour"),
        ("Okonkwo", "Okonkwo's ward, Mr.Okonkwo", "'s ward, Mr."),
        ("14", "3.14 14:30 114", "3. :30 114"),
        ("lega", "col·lega lega", "col·lega"),
        ("Dr.", "the Dr. and Drs.", "the and Drs."),
        ("ada@example.org", "to ada@example.org.", "to."),
        # scripts without spaces
        ("田中", "田中さんと東京", "さんと東京"),
        ("ตา", "ตา มา", " มา"),
        ("น้", "น้ำ น้", "น้ำ"),
        # the space before goes, and no more
        ("a", "x a\ta  a\na", "x \n"),
    ],
)
def test_a_word_is_struck_out_at_its_borders(word: str, text: str, left: str) -> None:
    assert struck([text], word) == [left]


def test_a_word_that_is_cut_between_two_pieces_is_struck_out_of_both() -> None:
    assert struck(["the snark", "s and snark", "", "owitz snarkowitz\n"], "snarkowitz") == [
        "the snark",
        "s and",
        "",
        "\n",
    ]
    assert struck(["a", "b"], "c") == ["a", "b"]
    assert struck(["ab ab", " ab"], "ab") == ["", ""]


@given(
    st.lists(st.text(LETTERS, max_size=8), max_size=4),
    st.text(LETTERS.replace("\n", "").replace(" ", ""), min_size=1, max_size=3),
)
def test_pieces_and_forms_change_nothing(pieces: list[str], word: str) -> None:
    left = struck(pieces, word)
    assert len(left) == len(pieces)
    assert struck(["".join(pieces)], word) == ["".join(left)]
    for form in ("NFC", "NFD"):
        assert struck(pieces, normalize(form, word)) == left
        assert normalize(
            "NFC", "".join(struck([normalize(form, "".join(pieces))], word))
        ) == normalize("NFC", "".join(left))
    assert (
        normalize("NFD", word).casefold()
        not in normalize("NFD", " ".join("".join(left).split())).casefold().split()
    )
