"""The memory of the exact words, as a method, beside others, and in a reader that is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import hebblm
from hebblm.errors import UserError

from .conftest import World, refused, result, run


def test_any_method_takes_an_ngram_beside_it(world: World, tmp_path: Path) -> None:
    line = (
        f"eval --checkpoint {world.model} --target {world.other_prepared} --max-tokens 400 "
        "--device cpu"
    )
    run(f"{line} --methods base,ngram,cache,cache+ngram,best --output-path {tmp_path / 'out'}")
    found = result(tmp_path / "out")["methods"]
    assert list(found) == ["lstm", "ngram", "cache", "cache+ngram", "best"]
    assert found["ngram"]["nll"] < found["lstm"]["nll"]
    assert found["cache+ngram"]["nll"] < found["cache"]["nll"]
    assert found["ngram"]["hyperparameters"] == {
        "order": 3,
        "fresh": "token",
        "capacity": 20_000_000,
        "lr": 0.1,
    }


def test_only_methods_have_one_beside_them(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"eval --checkpoint {world.model} --target {world.other_prepared} --methods"
    refused(capsys, f"{line} gpt+ngram", "unknown method 'gpt+ngram'")
    refused(capsys, f"{line} best+ngram", "unknown method 'best+ngram'")


def test_a_reader_counts_and_goes_on_where_it_was_saved(world: World, tmp_path: Path) -> None:
    lm, text = hebblm.load(world.model), world.other.read_text()
    reader = lm.reader(method="mixture+ngram")
    reader.read(text[:3000])
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    assert again.suggest("the", 5) == reader.suggest("the", 5)
    assert again.generate("the", max_new_tokens=5, temperature=0) == reader.generate(
        "the", max_new_tokens=5, temperature=0
    )
    assert again.read(text[3000:6000]).nll.tolist() == reader.read(text[3000:6000]).nll.tolist()
    scored = lm.reader(memory=tmp_path / "known").read(text[3000:6000], learn=False).nll
    assert scored.shape == again.read(text[3000:6000]).nll.shape


def test_a_text_in_pieces_reads_as_the_whole(world: World) -> None:
    lm, text = hebblm.load(world.model), world.text.read_text()[-4000:]
    pieces = lm.reader(method="ngram").read_pieces(text.splitlines(keepends=True))
    expected = lm.reader(method="ngram").read(text).nll.tolist()
    assert [loss for part in pieces for loss in part.nll.tolist()] == pytest.approx(
        expected, abs=1e-5
    )


def test_after_documents_a_reader_stands_at_the_beginning_of_a_text(world: World) -> None:
    lm, lines = hebblm.load(world.model), world.text.read_text().splitlines()
    reader = lm.reader(method="ngram")
    reader.read([lines[0], lines[1], lines[2]])
    before = reader.suggest("", 5)
    reader.begin()
    assert reader.suggest("", 5) == before
    assert reader.suggest(lines[2], 5) != before


def test_what_was_counted_by_another_order_is_refused(world: World, tmp_path: Path) -> None:
    lm = hebblm.load(world.model)
    reader = lm.reader(method="ngram")
    reader.read(world.text.read_text()[:500])
    reader.save(tmp_path / "known")
    with pytest.raises(
        UserError, match=r"ngram.order = 5, but the saved counts have order 3; leave it out"
    ):
        lm.reader(memory=tmp_path / "known", settings={"ngram.order": 5})
    assert lm.reader(memory=tmp_path / "known").method == "ngram"
