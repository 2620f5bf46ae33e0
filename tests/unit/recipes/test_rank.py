"""The recipe of words of like spelling: its lists hold what they say, and its intervals are
Wilson's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hebblm
from hebblm.io.files import read_json
from recipes.rank.words import KINDS, choices, gain, main, nearest, share


def test_neighbours_are_near_in_spelling_and_not_the_word_itself() -> None:
    every = ["array", "arrays", "arrow", "parse", "ray", "table", "tables", "zebra"]
    found = nearest(["array", "table"], every, 2)
    assert found["array"] == ("arrays", "ray")
    assert found["table"][0] == "tables"
    assert all(word not in others for word, others in found.items())


def test_lists_are_of_the_kinds_that_they_say() -> None:
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    read, behind = (
        ["The frobnitz is returned ."],
        ["The frobnitz and the zorgle are returned .", "Call frobnitz ."],
    )
    lists = choices(lm, read, behind, 9, 3, 1)
    kinds = {one.words[0]: one.kind for one in lists}
    assert kinds["frobnitz"] == "new, read of"
    assert kinds["zorgle"] == "new, not read of"
    assert kinds["the"] == "common"
    assert {*kinds.values()} <= {*KINDS}
    [zorgle] = [one for one in lists if one.words[0] == "zorgle"]
    assert zorgle.before == "The frobnitz and the"
    assert len({*zorgle.words}) == 4


def test_intervals() -> None:
    found = share([True] * 8 + [False] * 2)
    # as published for 8 of 10
    assert (found["low"], found["high"]) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    more = gain([True, True, False, True], [False, True, False, False])
    assert more["more"] == 0.5
    assert more["low"] < 0.5 < more["high"]


def test_a_small_run(tmp_path: Path) -> None:
    words = [
        "--model",
        "tiny-pydoc-raw",
        "--read",
        "300",
        "--lists",
        "2",
        "--timed",
        "3",
        "--methods",
        "lstm,cache",
    ]
    assert main([*words, "--output", str(tmp_path / "found.json")]) == 0
    found = read_json(tmp_path / "found.json")
    assert found["provenance"]["command"].startswith(
        "python -m recipes.rank.words --model tiny-pydoc-raw"
    )
    for method in ("lstm", "cache"):
        assert 0 <= found["methods"][method]["after"]["all"]["right"] <= 1
        assert found["methods"][method]["timed"]["of"] == 10
    assert found["methods"]["lstm"]["after, more than lstm"]["all"]["more"] == 0
