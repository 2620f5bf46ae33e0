"""What was learned of a text: its words, suggestions before and after, and the page that shades the
text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hebblm
from hebblm.cli.eval import main
from hebblm.errors import UserError
from hebblm.evaluation.learned import BEFORE, questions
from hebblm.report import Result
from hebblm.report.render.document import write_report
from hebblm.text.dictionary import EOS
from hebblm.text.prepared import EvaluationStream

TEXT = (
    "The function frobnitz returns a list of snarks .\n"
    "Call frobnitz with two arguments , and frobnitz raises an error .\n"
    "If the snarks fail , the quux method returns None .\n"
) * 8


def stream_of(text: str) -> EvaluationStream:
    words = text.replace("\n", f" {EOS} ").split()
    symbols = tuple(dict.fromkeys([EOS, *words]))
    ids = np.array([symbols.index(word) for word in words], dtype=np.int64)
    counts = np.zeros(len(symbols), dtype=np.int64)
    return EvaluationStream(
        ids, 0, len(symbols), len(symbols), symbols, counts, 1, len(words), len(text)
    )


def test_the_words_asked_for_are_those_that_gained_most_where_they_did() -> None:
    stream = stream_of("a b snark c .\nsnark a b c d e snark .\nb . once c\n")
    gains = np.zeros(len(stream))
    at = {
        word: [place for place in range(len(stream)) if stream.symbols[stream.ids[place]] == word]
        for word in "bc."
    }
    snarks = [2, 6, 12]
    gains[snarks] = 1.0, 9.0, 2.0  # the second one begins its line: nothing stands before it
    gains[at["b"]], gains[at["."]], gains[at["c"]] = 1.0, 50.0, -1.0
    gains[stream.ids.tolist().index(stream.symbols.index("once"))] = 70.0
    frequent = stream_of("x the x the x the x the x snark x snark\n")
    few = np.zeros(len(frequent))
    few[[1, 3, 5, 7]], few[[9, 11]] = 0.4, 0.6
    assert [item.word for item in questions(frequent, few)] == ["snark", "the"], (
        "it gains less, and more each time"
    )
    found = questions(stream, gains)
    assert [(item.word, item.begin, item.end) for item in found] == [
        ("snark", 12 - BEFORE, 12),
        ("b", 0, 1),
    ]


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_suggestions_are_those_of_a_reader_before_and_after_the_text(
    kind: str, tmp_path: Path
) -> None:
    lm = hebblm.load("tiny-pydoc-raw" if kind == "words" else "llama-wt2-small", device="cpu")
    if lm.pieces is not None:  # with a name of its own, no words of a training text are counted
        lm = hebblm.load((getattr(lm.model, "model"), lm.pieces.tokenizer))  # noqa: B009
    (tmp_path / "notes.txt").write_text(TEXT)
    result = hebblm.evaluate(
        lm,
        tmp_path / "notes.txt",
        methods=["base", "knn"],
        show_learned=True,
        output_path=tmp_path / "run",
    )
    found = result.extra["suggested"]
    assert found["method"] == "knn"
    assert len(found["words"]) == 3
    reader, fresh = lm.reader("knn"), lm.reader("knn")
    reader.read(TEXT)
    for item in found["words"]:
        within = lm.pieces is not None and f"\n{item['before']}" not in f"\n{TEXT}"
        context = f" {item['before']}" if within else item["before"]
        before, after = (
            fresh.suggest(context, n=3, budget=64),
            reader.suggest(context, n=3, budget=64),
        )
        assert item["read"][0][0] == after[0].word.strip(" ") == item["word"]
        if lm.pieces is not None:  # a reader of words has no rows for new words at first
            for answers, near in ((item["unread"], before), (item["read"], after)):
                assert [word for word, _ in answers] == [word.strip(" ") for word, *_ in near]
                assert [share for _, share in answers] == pytest.approx(
                    [share for _, share, _ in near], rel=1e-3
                )
    assert any("frobnitz" in item["word"] for item in found["words"])
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Suggestions before and after reading, kNN-LM" in page
    assert "Words that changed most" in page
    assert 'href="inspect.html"' in page
    assert "suggested" not in page.partition("<summary>Scenario</summary>")[2], (
        "it has a table of its own"
    )
    again = Result.load(tmp_path / "run")
    assert [item["word"] for item in again.extra["suggested"]["words"]] == [
        item["word"] for item in found["words"]
    ]
    assert write_report(again, tmp_path / "again", formats=["csv"])
    assert (tmp_path / "again" / "suggested.csv").is_file()


def test_the_command_prints_what_was_learned_and_where_the_page_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    command = [
        "--checkpoint",
        "tiny-pydoc-raw",
        "--text",
        str(tmp_path / "notes.txt"),
        "--methods",
        "base,ngram",
    ]
    out = ["--output-path", str(tmp_path / "run")]
    assert main([*command, "--show-learned", *out]) == 0
    said = capsys.readouterr().out
    assert "Words that changed most under n-gram" in said
    assert "After the words" in said
    assert f"open {tmp_path / 'run' / 'inspect.html'}" in said
    assert (tmp_path / "run" / "inspect.html").is_file()
    assert main([*command, *out]) == 0
    assert "suggested" not in Result.load(tmp_path / "run").extra
    assert main([*command, "--show-learned"]) == 2
    assert "--show-learned needs --output-path DIR to write to" in capsys.readouterr().err
    assert main([*command, "--show-learned", "--streams", "2", *out]) == 2
    assert "--show-learned follows a single stream" in capsys.readouterr().err
    with pytest.raises(
        UserError,
        match="show_learned compares a method with the base, not lstm; add base or a method",
    ):
        hebblm.evaluate(
            "tiny-pydoc-raw",
            tmp_path / "notes.txt",
            methods="base",
            show_learned=True,
            output_path=tmp_path / "run",
        )
