"""The numbers of README and docs are those of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from hebblm.report import Result
from recipes import readme_results as script
from recipes.real_tables import BEST, FOLDER, TITLES


@pytest.mark.parametrize("page", script.PAGES, ids=str)
def test_numbers_are_those_of_the_committed_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in script.PAGES[page]:
        assert [text.count(mark) for mark in script.marks(name)] == [1, 1]
    assert script.render(page, text) == text, "run python -m recipes.readme_results"


def test_a_changed_number_is_noticed() -> None:
    text = script.README.read_text(encoding="utf-8")
    begin, _ = script.marks("needs")
    head, table = text.split(begin)
    number = next(word for word in table.split() if word.replace(".", "").isdigit() and "." in word)
    assert script.render(script.README, f"{head}{begin}{table.replace(number, '0.123', 1)}") == text


def test_the_picture_is_there() -> None:
    assert script.PICTURE.is_file()
    assert len(script.PICTURED) == 5


def test_the_picture_of_the_page_is_small_enough_for_readme() -> None:
    path = script.DOCS / "serve.png"
    assert f"(docs/{path.name})" in script.README.read_text(encoding="utf-8")
    assert path.stat().st_size < 150_000
    with Image.open(path) as picture:
        assert picture.width == 1200


@pytest.mark.parametrize("text", TITLES)
def test_a_window_of_512_with_best_predicts_better_than_4096_without(text: str) -> None:
    short, long = (
        Result.load(FOLDER / "windows" / f"{text}-{window}.json") for window in (512, 4096)
    )
    bits, alone = short.methods[BEST].bits_per_byte, long.methods["lstm"].bits_per_byte
    assert bits is not None
    assert alone is not None
    assert bits < alone, "README says so"
