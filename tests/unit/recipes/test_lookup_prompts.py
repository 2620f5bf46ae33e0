"""Prompts of a text: lines cut after 3 to 8 words, of paragraphs that are not learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from hebblm.io.files import read_json
from recipes.lookup import invented
from recipes.lookup.prompts import Prompt, bare, parts, prompts
from recipes.lookup.texts import NOTES


def test_three_quarters_of_the_paragraphs_are_learned() -> None:
    paragraphs = [f"paragraph number {number} has seven words .\n" for number in range(8)]
    learned, asked = parts("# A title\n\n" + "\n\n".join(paragraphs))
    assert [text.count("paragraph") for text in (learned, asked)] == [6, 2]
    assert "title" not in learned
    assert parts("\n".join(paragraph.strip() for paragraph in paragraphs)) == parts(
        "".join(paragraphs)
    )


def test_a_line_is_cut_after_3_to_8_words_and_keeps_its_blanks() -> None:
    assert sorted(prompts("    one  two three four five, = seven")) == [
        Prompt("    one  two three", "four"),
        Prompt("    one  two three four", "five,"),
    ]
    assert bare(" five,") == "five"


def test_the_notes_have_72_prompts() -> None:
    found = prompts(parts(NOTES.read_text(encoding="utf-8"))[1])
    assert len(found) == 72
    assert found[:2] == [Prompt("If the Zirkel-7", "fails"), Prompt("The ROS bridge", "of")]


def test_invented_texts_are_the_same_every_time() -> None:
    assert invented.minutes(invented.WARD, 3, 2) == invented.minutes(invented.WARD, 3, 2)
    assert invented.log(invented.BUILD, 4, 9) != invented.log(invented.BUILD, 5, 9)
    assert len(invented.log(invented.BUILD, 4, 9).splitlines()) == 9


@pytest.mark.parametrize("name", ["before", "notes", "letters-before", "letters"])
def test_the_page_has_the_sums_of_the_runs(name: str) -> None:
    folder = Path(NOTES).parents[1]
    run = read_json(folder / f"{name}.json")
    (row,) = [
        line
        for line in (folder / "README.md").read_text(encoding="utf-8").splitlines()
        if f"({name}.json)" in line and line.startswith("|")
    ]
    texts = run["texts"].values()
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    expected = [str(sum(text["prompts"] for text in texts))]
    for method in ("lookup", "base", "best"):
        found = [text["methods"][method] for text in texts if method in text["methods"]]
        sums = [sum(each[measure] for each in found) for measure in ("first", "among three")]
        expected.append(f"{sums[0]} / {sums[1]}" if found else "")
    assert cells == expected
