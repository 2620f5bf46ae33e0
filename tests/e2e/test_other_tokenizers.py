"""Texts under tokenizers of other people: the same words, no loss that is too low, pieces where
there are no words.
"""

from __future__ import annotations

import json
import math
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hebblm
from hebblm.cli.eval import main as evaluate
from hebblm.report.render.document import write_report

from ..support.pieces import KINDS, tokenizer_of
from ..unit.models.architectures import random_model

METHODS = ["base", "knn"]
UNKNOWN = "frobnitz quux grault waldo plugh xyzzy\n" * 20
CHINESE = "今天天气很好我们去公园散步吧" * 60 + "\n"


def model(kind: str) -> hebblm.LanguageModel:
    tokenizer = tokenizer_of(kind)
    return hebblm.load(
        (random_model("Llama", vocab_size=len(tokenizer)), tokenizer), context=32, stride=16
    )


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_their_sums_are_those_of_the_text(kind: str, tmp_path: Path) -> None:
    text = "end of the war\n\nthe  list is long .\nla , the list\n" * 3
    (tmp_path / "text.txt").write_text(text)
    lm = model(kind)
    result = hebblm.evaluate(
        lm, tmp_path / "text.txt", METHODS, output_path=tmp_path / "out", log_samples=True
    )
    words = text.replace("\n", " <eos> ").split()
    assert result.scenario.tokens == len(words)
    table = pq.read_table(tmp_path / "out" / "tokens.parquet").to_pydict()
    assert table["token"] == words
    scores = lm.reader("lstm").read(text)
    plain, total = result.methods["lstm"], float(scores.nll.double().sum())
    assert plain.nll * len(words) == pytest.approx(total, rel=1e-5)
    assert plain.piece_nll == pytest.approx(total / len(scores), rel=1e-5)
    assert math.log(scores.word_perplexity) * len(words) == pytest.approx(total, rel=1e-5)
    assert plain.bits_per_byte == pytest.approx(scores.bits_per_byte, rel=1e-5)
    assert sum(table["nll_lstm"]) == pytest.approx(total, rel=1e-5)
    assert result.scenario.extra["lost_bytes"] == scores.lost


def test_composed_and_decomposed_letters_are_the_same_words(tmp_path: Path) -> None:
    found = []
    for form in ("NFC", "NFD"):
        path = tmp_path / f"{form}.txt"
        path.write_text(unicodedata.normalize(form, "là .\n" * 10))
        found.append(hebblm.evaluate(model("NFC"), path, ["base"]))
    assert [each.scenario.tokens for each in found] == [30, 30]
    assert found[0].methods["lstm"].nll == pytest.approx(found[1].methods["lstm"].nll)
    assert [each.scenario.extra["lost_bytes"] for each in found] == [0, 30]


def test_unknown_words_are_spelled_and_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(UNKNOWN)
    lm = model("words")
    result = hebblm.evaluate(lm, tmp_path / "text.txt", METHODS)
    assert "120 of 120 pieces of" in capsys.readouterr().err
    assert (result.scenario.oov_tokens, result.scenario.oov_types) == (120, 6)
    spelled = sum(len(word) + 1 for word in UNKNOWN.split())
    for item in result.methods.values():
        assert item.piece_nll is not None
        bits = item.piece_nll * 120 / math.log(2) + 8 * spelled
        assert item.bits_per_byte == pytest.approx(bits / len(UNKNOWN), rel=1e-6)
        assert item.bits_per_byte > 7.9
    scores = lm.reader("lstm").read(UNKNOWN)
    assert bool(scores.new.all())
    assert scores.bits_per_byte == pytest.approx(result.methods["lstm"].bits_per_byte)
    assert scores.by_word().bits == pytest.approx(scores.bits)


def test_case_that_the_tokenizer_loses_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = []
    for name, text in (
        ("upper", "THE LIST Is Long.\n" * 20),
        ("lower", "the list is long.\n" * 20),
    ):
        (tmp_path / f"{name}.txt").write_text(text)
        result = hebblm.evaluate(
            model("lower case"), tmp_path / f"{name}.txt", METHODS, output_path=tmp_path / name
        )
        told = capsys.readouterr().err
        losses.append(result.methods["lstm"].bits_per_byte)
        assert result.scenario.extra["lost_bytes"] == (180 if name == "upper" else 0)
        assert ("the tokenizer loses at least 50 % of the bytes of" in told) == (name == "upper")
        page = (tmp_path / name / "report.md").read_text()
        assert ("Do not compare them with those of another model." in page) == (name == "upper")
    assert losses[0] == pytest.approx(losses[1])
    reader = model("lower case").reader("lstm")
    for _ in range(2):
        assert reader.read("THE LIST\n").lost == 7
    assert (
        capsys.readouterr().err.count(
            "the tokenizer loses at least 77.8 % of the bytes of this text"
        )
        == 1
    )


def test_a_text_without_blanks_is_told_of_by_pieces(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(CHINESE)
    result = hebblm.evaluate(
        model("byte-level"), tmp_path / "text.txt", METHODS, output_path=tmp_path / "out"
    )
    pieces = result.scenario.extra["pieces"]
    assert result.scenario.tokens == 2 < 2_000 < pieces
    verdict = result.verdict()
    assert "nats a piece below the base" in verdict
    assert "interval" in verdict
    assert "too few" not in verdict
    assert "1e308" not in verdict
    gain = result.gain("knn", part="Pieces")
    assert gain is not None
    assert gain.tokens == pieces
    assert gain.certain
    assert result.methods["lstm"].perplexity == math.inf
    assert '"perplexity":"inf"' in (tmp_path / "out" / "result.json").read_text().replace(" ", "")
    table = result.table()
    assert "Bits (byte)" in table
    assert "Pieces/s" in table
    assert "(word)" not in table, "a word of 840 letters has no perplexity"
    again = hebblm.report.Result.load(tmp_path / "out")
    assert again.verdict() == verdict
    assert write_report(again, tmp_path / "again")


def test_a_verdict_over_the_beginning_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the list is long .\n" * 600)
    part = hebblm.evaluate(model("byte-level"), tmp_path / "text.txt", METHODS, max_tokens=2_500)
    assert "on these 2,500 pieces" in part.verdict()
    few = hebblm.evaluate(model("byte-level"), tmp_path / "text.txt", METHODS, max_tokens=100)
    assert "raise max_tokens" in few.verdict()
    (tmp_path / "short.txt").write_text("the list is long .\n" * 10)
    short = hebblm.evaluate(model("byte-level"), tmp_path / "short.txt", METHODS)
    assert "; read a text of" in short.verdict()
    assert "on these" not in short.verdict()


def test_punctuation_is_split_off_for_counting_and_moses_splits_it_for_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.txt").write_text("the budget is long , the list .\n" * 40)
    (tmp_path / "text.txt").write_text("the budget, the list.\nthe Frobnitz, the Frobnitz.\n" * 5)
    options = {"source": f"text:{tmp_path / 'train.txt'}"}
    lm = model("byte-level")
    as_it_stands = hebblm.evaluate(lm, tmp_path / "text.txt", ["base"], **options)
    told = capsys.readouterr().err
    assert "50 % of the words of" in told
    assert "use tokenizer=moses" in told
    assert as_it_stands.scenario.tokens == 50
    assert (as_it_stands.scenario.oov_tokens, as_it_stands.scenario.oov_types) == (10, 1)
    split = hebblm.evaluate(lm, tmp_path / "text.txt", ["base"], tokenizer="moses", **options)
    assert split.scenario.tokens == 70
    assert (split.scenario.oov_tokens, split.scenario.oov_types) == (10, 1)
    assert "are counted without" not in capsys.readouterr().err
    assert np.isfinite(split.methods["lstm"].nll)
    reader = lm.reader("lstm", tokenizer="moses")
    scores = reader.read((tmp_path / "text.txt").read_text())
    assert float(scores.nll.double().sum()) == pytest.approx(
        split.methods["lstm"].nll * 70, rel=1e-5
    )


def test_each_document_has_its_own_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the list is long .\n" * 5, "xyz quux\nzyx\n", "the end of the war\n"]
    rows = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows) + "\n")
    folder, tokenizer = tmp_path / "model", tokenizer_of("byte-level")
    random_model("Llama", vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    command = [
        "--model",
        str(folder),
        "--text",
        str(tmp_path / "texts.jsonl"),
        "--methods",
        "base,knn",
    ]
    command += ["--by-document"]
    assert evaluate([*command, "--output-path", str(tmp_path / "out")]) == 0
    assert "Perplexity by document" in capsys.readouterr().out
    documents = json.loads((tmp_path / "out" / "result.json").read_text())["documents"]
    assert [each["name"] for each in documents] == [
        f"texts.jsonl:record {number}" for number in (1, 2, 3)
    ]
    assert [each["bytes"] for each in documents] == [len(text) for text in texts]
    assert [each["tokens"] for each in documents] == [
        len(text.replace("\n", " . ").split()) for text in texts
    ]
    scores = hebblm.load(folder).reader("lstm").read("".join(texts))
    ends = np.cumsum([each["pieces"] for each in documents])
    assert ends[-1] == len(scores)
    for document, losses in zip(
        documents, np.split(scores.nll.double().numpy(), ends[:-1]), strict=True
    ):
        assert document["piece_nll"]["lstm"] == pytest.approx(losses.mean(), rel=1e-5)
        bits = losses.sum() / math.log(2) / document["bytes"]
        assert document["bits_per_byte"]["lstm"] == pytest.approx(bits, rel=1e-5)
    (tmp_path / "one.txt").write_text(texts[0])
    assert evaluate([*command[:3], str(tmp_path / "one.txt"), *command[4:]]) == 0
    assert "is a single document" in capsys.readouterr().out
