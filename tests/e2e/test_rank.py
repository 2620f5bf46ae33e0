"""hebblm-read --rank: lists of a recogniser in, the same lists best first out, and nothing where a
line is none.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hebblm
from hebblm.cli.read import main

TEXT = "The function frobnitz returns a list .\nCall frobnitz with two arguments .\n" * 5
LISTS = [
    {
        "id": "utt-1",
        "before": "The function ",
        "candidates": [
            {"text": "function returns", "score": -3.5},
            {"text": "frobnitz returns", "score": -4.0},
        ],
    },
    {
        "id": 2,
        "candidates": [{"text": "Call frobnitz with"}, {"text": "Call function with"}],
        "speaker": "A",
    },
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text(TEXT)
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LISTS) + "\n")
    return tmp_path


def test_lists_are_ranked_behind_the_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "tiny-pydoc-raw",
        str(folder / "notes.txt"),
        "--method",
        "best",
        "--rank",
        str(folder / "lists.jsonl"),
    ]
    assert main([*command, "--prior-weight", "0.5", "--suggest", "The", "--generate", "The"]) == 0
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert "perplexity" in captured.err
    assert [one["id"] for one in found] == ["utt-1", 2]
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("best")
    reader.read(TEXT)
    expected = reader.rank(
        ["function returns", "frobnitz returns"], "The function ", prior=[-3.5, -4.0], weight=0.5
    )
    assert [each["text"] for each in found[0]["candidates"]] == [
        "frobnitz returns",
        "function returns",
    ]
    for each, same in zip(found[0]["candidates"], expected, strict=True):
        assert [
            each[name] for name in ("total", "log_prob", "unadapted", "score")
        ] == pytest.approx([same.score, same.log_prob, same.unadapted, same.prior], abs=1e-4)
        assert each["total"] == each["log_prob"] + 0.5 * each["score"]
    assert main([*command, "--prior-weight", "0.5", "--ranked", str(folder / "out.jsonl")]) == 0
    assert "perplexity" in capsys.readouterr().out
    assert (folder / "out.jsonl").read_text() == captured.out


def test_silence_and_missing_scores_stop_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = [
        {
            "id": 1,
            "candidates": [{"text": "", "score": -1.0}, {"text": "Call frobnitz", "score": -2.0}],
        },
        {
            "id": 2,
            "candidates": [
                {"text": "frobnitz", "score": -7},
                {"text": "a", "score": None},
                {"text": " "},
            ],
        },
        {
            "id": 3,
            "candidates": [{"text": "frobnitz", "score": None}, {"text": "a", "score": None}],
        },
    ]
    (folder / "lists.jsonl").write_text("\n".join(map(json.dumps, lists)))
    command = [
        "tiny-pydoc-raw",
        str(folder / "notes.txt"),
        "--method",
        "best",
        "--rank",
        str(folder / "lists.jsonl"),
    ]
    assert main(command) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["id"] for one in found] == [1, 2, 3]
    assert {each["text"]: each["score"] for each in found[0]["candidates"]} == {
        "": -1.0,
        "Call frobnitz": -2.0,
    }
    assert {each["score"] for each in found[1]["candidates"]} == {-7.0}, (
        "no score counts as the worst one"
    )
    assert {each["score"] for each in found[2]["candidates"]} == {0.0}
    assert all(each["log_prob"] < 0 for one in found for each in one["candidates"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 1', "line 3 holds no alternatives (Input data was truncated); write {"),
        (
            '{"id": 1}',
            "line 3 holds no alternatives (Object missing required field `candidates`); write {",
        ),
        ('{"candidates": [{"text": "a"}]}', "missing required field `id`"),
        (
            '{"id": 1, "candidates": [{"text": 7}]}',
            "Expected `str`, got `int` - at `$.candidates[0].text`",
        ),
        (
            '{"id": 1, "candidates": [{"text": "a", "score": "b"}]}',
            "Expected `float | null`, got `str`",
        ),
        ('{"id": 1, "candidates": []}', "line 3 has no candidate; write one, or remove the line"),
        (
            '{"id": 1, "candidates": [{"text": null}]}',
            "Expected `str`, got `null` - at `$.candidates[0].text`",
        ),
        ('["a", "b"]', "line 3 holds no alternatives (Expected `object`, got `array`)"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    lines = (folder / "lists.jsonl").read_text().splitlines()[:2]
    (folder / "lists.jsonl").write_text("\n".join([*lines, line]))
    command = [
        "tiny-pydoc-raw",
        str(folder / "notes.txt"),
        "--method",
        "lstm",
        "--rank",
        str(folder / "lists.jsonl"),
    ]
    for more in ([], ["--ranked", str(folder / "out.jsonl")]):
        assert main([*command, *more]) == 2
        captured = capsys.readouterr()
        assert not captured.out.startswith("{")
        [error] = [one for one in captured.err.splitlines() if one.startswith("hebblm-read: ")]
        assert message in error
        assert not (folder / "out.jsonl").exists()


def test_a_file_without_lists_and_an_output_without_a_file_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.jsonl").write_text("\n\n")
    assert main(["tiny-pydoc-raw", "--rank", str(folder / "empty.jsonl")]) == 2
    assert "empty.jsonl holds no alternatives; write {" in capsys.readouterr().err
    assert main(["tiny-pydoc-raw", "--ranked", str(folder / "out.jsonl")]) == 2
    assert "is where the lists of --rank go; name their file with --rank" in capsys.readouterr().err
    assert main(["tiny-pydoc-raw", "--rank", str(folder / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
