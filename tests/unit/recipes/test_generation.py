"""The recipe of generation: its measures of an answer, by hand, and a whole run by the shipped
Llama.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hebblm
from hebblm.io.files import read_json
from recipes.generation.measure import LENGTH, compared, described, main


def test_an_answer_is_measured_by_its_own_pieces() -> None:
    lm = hebblm.load("llama-wt2-small", device="cpu")
    alone = lm.reader("base")
    alone.read("The cat sat on the mat .\n")
    assert lm.pieces is not None
    answer = " the cat the cat the cat"
    ids = lm.pieces.ids(answer)
    found = described(lm, alone, answer, [*ids[:2], *(index + 1 for index in ids[2:])])
    assert found["matches"] == 2 / LENGTH
    assert found["first pieces right"] == 2
    assert found["distinct 1-grams"] == len(set(ids)) / len(ids)
    [ranked] = alone.rank([answer])
    assert found["nats a piece"] == pytest.approx(-ranked.unadapted / len(ids))


def test_differences_are_paired() -> None:
    rows = [
        {"adapted": {"matches": one}, "alone": {"matches": one - 0.1}} for one in (0.2, 0.5, 0.9)
    ]
    found = compared(rows)["matches"]
    assert found["difference"]["low"] == pytest.approx(0.1)
    assert found["difference"]["high"] == pytest.approx(0.1)
    assert found["adapted"] - found["alone"] == pytest.approx(0.1)


def test_a_run_leaves_a_file_with_all_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(
        "The function frobnitz returns a list . Call it with two arguments .\n" * 20
    )
    line = (
        "measure llama-wt2-small text.txt --prompts 2 --pieces 120 --first 60 --context 128 "
        "--output found.json"
    )
    monkeypatch.setattr("sys.argv", line.split())
    assert main() == 0
    found = read_json(Path("found.json"))
    assert found["pieces"] == 120
    for way in ("greedy", "sampled"):
        assert found[way]["prompts"] == 2
        assert {"matches", "nats a piece", "distinct 4-grams"} <= set(found[way]["measures"])
