"""A page about a model of pieces counts by piece, and says where words were counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hebblm
from hebblm.report.plots.figures import comparison_figure, running_figure
from hebblm.report.render.document import write_report
from hebblm.report.result.schema import PIECES_OF_PARTS
from hebblm.report.result.tokens import TokenLosses, with_edges
from hebblm.report.tables.by_part import frequency_table, gain_table, occurrence_table
from hebblm.report.tables.overall import comparison_table

COUNTED = (
    "The function returns a list .\nThe list is empty , and the function returns None .\n" * 30
)
TEXT = (
    "The function frobnitz returns a list of snarks, or None.\n    Call frobnitz(2) again; it "
    "returns a list.\n" * 60
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[hebblm.Result, Path]:
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.txt").write_text(COUNTED)
    (folder / "notes.txt").write_text(TEXT)
    shipped = hebblm.load("llama-wt2-small", device="cpu")
    assert shipped.pieces is not None
    assert "pieces)" in repr(shipped)
    lm = hebblm.load((getattr(shipped.model, "model"), shipped.pieces.tokenizer))  # noqa: B009
    result = hebblm.evaluate(
        lm, folder / "notes.txt", methods=["base", "knn"], source=f"text:{folder / 'train.txt'}",
        frequency_edges=(1, 60), log_samples=True, output_path=folder / "out",
    )  # fmt: skip
    return result, folder


def test_every_number_of_the_page_is_by_piece(run: tuple[hebblm.Result, Path]) -> None:
    result, folder = run
    pieces, parts = result.scenario.extra["pieces"], result.extra[PIECES_OF_PARTS]
    assert parts["All"] == pieces > result.scenario.tokens
    assert sum(parts[name] for name in ("<1", "1-60", ">60")) == pytest.approx(pieces, abs=2)
    item, base = result.methods["knn"], result.methods["lstm"]
    assert item.running[-1][0] == pieces
    assert item.running[-1][1] == pytest.approx(item.piece_nll)
    frequency, gains, occurrences = (
        frequency_table(result),
        gain_table(result),
        occurrence_table(result),
    )
    assert frequency is not None
    assert gains is not None
    assert occurrences is not None
    for table in (frequency, gains, occurrences):
        assert table.columns[0].subheader == "pieces"
    assert frequency.columns[-1].subheader == pytest.approx(pieces, abs=2)
    sizes = [parts[name] for name in ("<1", "1-60", ">60")]
    for row, method in zip(frequency.cells(), (base, item), strict=True):
        total = sum(
            size * np.log(cell)
            for size, cell in zip(sizes, row[1:-1], strict=True)
            if isinstance(cell, float)
        )
        assert total / sum(sizes) == pytest.approx(method.piece_nll, rel=2e-3), (
            "parts make up the whole"
        )
        assert row[-1] == method.piece_perplexity
    assert "nats a piece" in gains.title
    assert result.verdict().count(" a piece") == 1
    assert " bits a byte instead of " in result.verdict()
    gain = base.loss - item.loss
    running, comparison = running_figure(result), comparison_figure(result)
    assert running is not None
    assert comparison is not None
    assert running.axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(gain)
    assert [axis.get_title(loc="left") for axis in comparison.axes] == [
        "All pieces",
        "New words",
        "Known words",
    ]
    assert "word" not in [column.subheader for column in comparison_table(result).columns]
    edged = with_edges(result, TokenLosses.load(folder / "out" / "tokens.parquet", result), (30,))
    assert edged.gain("knn", part="Pieces") == result.gain("knn", part="Pieces")
    assert edged.extra[PIECES_OF_PARTS]["<30"] + edged.extra[PIECES_OF_PARTS][
        ">30"
    ] == pytest.approx(pieces, abs=2)


def test_an_older_result_has_its_parts_by_word_and_says_so(
    run: tuple[hebblm.Result, Path], tmp_path: Path
) -> None:
    result, _ = run
    document = result.to_json()
    del document[PIECES_OF_PARTS]
    words = result.scenario.tokens
    for item in document["methods"].values():
        item["running"] = [[words // 2, item["nll"]], [words, item["nll"]]]
    older = hebblm.Result.from_json(document)
    gains, frequency, running = gain_table(older), frequency_table(older), running_figure(older)
    assert gains is not None
    assert frequency is not None
    assert running is not None
    assert gains.columns[0].subheader == frequency.columns[0].subheader == "words"
    assert "nats a word" in gains.title
    assert running.axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(
        result.methods["lstm"].loss - result.methods["knn"].loss
    )
    assert write_report(older, tmp_path)


def test_a_named_text_renames_no_model_and_is_not_called_training(
    run: tuple[hebblm.Result, Path], tmp_path: Path
) -> None:
    result, folder = run
    assert result.scenario.label == "LlamaForCausalLM-to-notes.txt all"
    assert result.scenario.extra["words_counted_in"] == f"text:{folder / 'train.txt'}"
    write_report(
        result,
        tmp_path,
        formats=["md"],
        tokens=TokenLosses.load(folder / "out" / "tokens.parquet", result),
    )
    page = (
        (tmp_path / "report.md").read_text(encoding="utf-8").partition("## Where the time goes")[0]
    )
    assert "Count in train.txt" in page
    assert "In train.txt" in page
    assert "those that train.txt lacked" in page
    assert "training" not in page.lower()


def test_the_log_holds_each_word_as_it_stands(run: tuple[hebblm.Result, Path]) -> None:
    _, folder = run
    table = pq.read_table(folder / "out" / "tokens.parquet")
    assert "".join(table.column("text").to_pylist()) == TEXT
    assert "snarks" in table.column("token").to_pylist(), "counted without its comma"
    assert " snarks," in table.column("text").to_pylist()
    assert sum(table.column("pieces").to_pylist()) == pytest.approx(
        len(hebblm.load("llama-wt2-small", device="cpu").vocabulary.encode(TEXT, include=False).ids)
    )
