"""What a newcomer does in the first hour: each task is one or two commands, or lines of Python, of
README and docs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hebblm
from hebblm.cli.eval import main as evaluate
from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.report import main as report
from hebblm.cli.train import main as train
from hebblm.cli.tune import main as tune
from hebblm.cli.vision import main as vision

from ..unit.vision.samples import mnist_files

MODEL = "tiny-pydoc-raw"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def notes(tmp_path: Path) -> str:
    """Write a text of one's own with a word that no model knows, and return its path."""
    lines = [
        "The function frobnitz returns a list .",
        "Call frobnitz with two arguments , or raise an error .",
    ]
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(lines * 20) + "\n")
    return str(path)


def test_a_shipped_model_on_a_corpus_ends_in_a_verdict(capsys: Capture) -> None:
    some = ["--methods", "lstm,mixture,hebb", "--max-tokens", "250"]
    assert evaluate(["--checkpoint", MODEL, "--target", "numpy", *some]) == 0
    printed = capsys.readouterr().out
    said = " ".join(printed.split())
    assert said.index("lowest loss") < said.index("Perplexity")
    assert max(map(len, printed.splitlines())) <= 80


def test_own_text_from_the_file_to_a_report(notes: str, tmp_path: Path, capsys: Capture) -> None:
    corpus, model, out = (str(tmp_path / name) for name in ("corpus", "model", "out"))
    assert preprocess(["--text", notes, "--output-path", corpus]) == 0
    assert (
        train(["--corpus", corpus, "--preset", "tiny", "--epochs", "1", "--output-path", model])
        == 0
    )
    chosen = ["--intra-domain", corpus, "--checkpoint", model, "--methods", "lstm,knn"]
    assert evaluate([*chosen, "--output-path", out]) == 0
    page = tmp_path / "out" / "report.html"
    assert page.is_file()
    assert f"open {page} in a browser" in capsys.readouterr().out.splitlines()[-1]
    assert "kNN-LM" in (tmp_path / "out" / "report.md").read_text()


def test_own_file_without_training_tuning_of_two_methods_and_two_runs_side_by_side(
    notes: str, tmp_path: Path, capsys: Capture
) -> None:
    chosen = ["--checkpoint", MODEL, "--text", notes]
    assert (
        evaluate([*chosen, "--methods", "lstm,hebb", "--output-path", str(tmp_path / "before")])
        == 0
    )
    tuned = tmp_path / "tuned"
    assert (
        tune(
            [
                *chosen,
                "--methods",
                "mixture,mbpa",
                "--max-tokens",
                "20",
                "--output-path",
                str(tuned),
            ]
        )
        == 0
    )
    assert "hebblm-eval" in capsys.readouterr().out
    config = ["--config", str(tuned / "config.json")]
    assert (
        evaluate(
            [*config, *chosen, "--methods", "lstm,mbpa", "--output-path", str(tmp_path / "after")]
        )
        == 0
    )
    both = [str(tmp_path / "before"), str(tmp_path / "after")]
    assert report([*both, "--output-path", str(tmp_path / "both")]) == 0
    assert "MbPA" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("main", "arguments", "told"),
    [
        (
            evaluate,
            ["--checkpoint", "tiny-pydc", "--target", "numpy"],
            "did you mean tiny-pydoc-raw",
        ),
        (evaluate, ["--checkpoint", MODEL, "--target", "nunpy"], "did you mean numpy"),
        (
            tune,
            ["--checkpoint", MODEL, "--target", "numpy", "--methods", "heb"],
            "did you mean hebb",
        ),
    ],
)
def test_wrong_input_is_one_line(main, arguments: list[str], told: str, capsys: Capture) -> None:  # type: ignore[no-untyped-def]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_picture_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    mnist_files(tmp_path / "data")
    monkeypatch.setenv("HEBBLM_DATA", str(tmp_path / "data"))
    command = [
        "permuted-mnist",
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "--set",
        "epochs=1",
        "tasks=1",
        "tune_tasks=1",
    ]
    assert vision([*command, "--output-path", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "permuted-mnist.png").is_file()


def test_next_words_with_probabilities_in_python(notes: str) -> None:
    reader = hebblm.load(MODEL).reader("mixture+hebb")
    reader.read(Path(notes).read_text()[:400])
    words = reader.suggest("Call", n=5)
    assert words[0].word == "frobnitz"
    # the rest is <unk>
    assert 0.9 < sum(item.probability for item in reader.suggest("Call", n=10_000)) <= 1.0001
