from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from recipes.study.book import contents, load_sources
from recipes.study.book.claims import Outcome
from recipes.study.book.contents import TITLE
from recipes.study.book.language import preset_of
from recipes.study.book.section import Section
from recipes.study.book.writing import latex, markdown
from recipes.study.command import main

from ...unit.report.samples import sample_result
from .samples import COMMIT, permuted, readings, tuned, within, write, write_results

CHAPTERS = (
    "The paper's claims",
    "Language models",
    "Tuning",
    "Images",
    "Cost",
    "Where the numbers come from",
)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_results(tmp_path_factory.mktemp("results"))
    out = tmp_path_factory.mktemp("book")
    assert main(["book", str(root), "--output-path", str(out)]) == 0
    return out


class Outline(HTMLParser):
    """Headings, targets of links, identifiers and pictures of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.pictures: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(tag)
        self.links += [str(values["href"])] if "href" in values else []
        self.ids += [str(values["id"])] if "id" in values else []
        self.pictures += [str(values["src"])] if "src" in values else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_book_has_three_forms_and_its_pictures(book: Path) -> None:
    assert {path.name for path in book.iterdir()} == {"book.md", "book.tex", "book.html", "figures"}
    text, tex = (book / "book.md").read_text("utf-8"), (book / "book.tex").read_text("utf-8")
    pictures = {path.name for path in (book / "figures").iterdir()}
    assert {
        "intra-ptb-frequency.png",
        "cross-comparison.png",
        "permuted-permuted-mnist.png",
        "cost.png",
    } <= pictures
    for found in (
        re.findall(r"\(figures/([^)]+)\)", text),
        re.findall(r"\{figures/([^}]+)\}", tex),
    ):
        assert sorted(found) == sorted(pictures)


def test_markdown_and_latex_hold_what_the_files_say(book: Path) -> None:
    text, tex = (book / "book.md").read_text("utf-8"), (book / "book.tex").read_text("utf-8")
    for heading in CHAPTERS:
        assert f"\n## {heading}\n" in text
        assert rf"\section{{{heading}}}" in tex
    assert "### ptb test: intra-ptb\n" in text
    assert (
        text.count(
            "Base model of ptb, lower: perplexity 85.70 on its validation text, the paper's 60.88."
        )
        == 1
    )
    assert "| intra-ptb | ptb test | small, 16 epochs | 4,576,400 | 85.70 | 82,430 | 1 |" in text
    assert "| mbpa.lr | 5 | 0.1 |" in text
    assert "Points tried: Mixture 2." in text
    assert "hebblm-tune --intra-domain ptb: commit None" in text.replace("\\", "")
    assert f"hebblm-vision permuted-mnist: commit {COMMIT[:12]}, device cpu." in text
    assert "#### Online adaptation, small\n" in text
    assert "| Hebb | 54.00 | - | 41.46 | 54.00 | - | 73.16 | 54.00 | - | 57.31 |" in text
    claim = (
        "| Hebb better than MbPA, online, new classes | online | +2.900 | -1.000 | - | scale small"
    )
    assert claim in text
    assert "| tokens | 82,430 | 1,000 |" in text, "what the two runs of a scenario differ in"
    assert tex.count(r"\begin{table}") == tex.count(r"\fit{}") > 10
    assert tex.count("{") == tex.count("}")
    labels = re.findall(r"\\label\{([^}]*)\}", tex)
    assert len(labels) == len(set(labels))


def test_what_is_unknown_is_named_in_a_line(book: Path) -> None:
    text = (book / "book.md").read_text("utf-8")
    assert "notes.json is left out: the book does not know its schema 'diary/7'." in text
    assert "The book does not know the experiment 'juggling'." in text


def test_the_page_needs_nothing_beside_it(book: Path) -> None:
    html = (book / "book.html").read_text("utf-8")
    outline = Outline(html)
    assert outline.open == []
    assert {link.removeprefix("#") for link in outline.links} == set(outline.ids)
    assert all(link.startswith("#") for link in outline.links)
    assert outline.pictures
    assert all(source.startswith("data:image/png;base64,") for source in outline.pictures)
    assert not {"script", "link"} & set(re.findall(r"<(\w+)", html))
    assert outline.headings[0] == "h1"
    assert set(outline.headings) == {"h1", "h2", "h3", "h4"}


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    within().save(tmp_path / "results")
    for name in ("first", "second"):
        assert main(["book", str(tmp_path / "results"), "--output-path", str(tmp_path / name)]) == 0
    paths = [path for path in (tmp_path / "first").rglob("*") if path.is_file()]
    assert len(paths) == 6
    for path in paths:
        assert (
            path.read_bytes()
            == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes()
        )


def test_pictures_of_results_that_are_gone_go_and_nothing_else(tmp_path: Path) -> None:
    results, book = tmp_path / "results", tmp_path / "book"
    for name in ("kept", "renamed"):
        within().save(results / name)
    assert main(["book", str(results), "--output-path", str(book)]) == 0
    figures = book / "figures"
    before = {path.name for path in figures.iterdir()}
    mine = {"mine.png", "other-frequency.png", "renamed-frequency.svg", "notes.txt"}
    for name in mine:
        (figures / name).write_text("the user's own")
    (results / "renamed").rename(results / "new")
    assert main(["book", str(results), "--output-path", str(book)]) == 0
    shown = {name.replace("renamed", "new") for name in before}
    assert shown != before
    assert {path.name for path in figures.iterdir()} == shown | mine
    (book / "book.md").write_text(
        "![not a book](../kept-frequency.png)\n![](figures/../../results/x.png)\n"
    )
    assert main(["book", str(results), "--output-path", str(book)]) == 0
    assert {path.name for path in figures.iterdir()} == shown | mine


def test_every_file_is_listed_with_its_origin(tmp_path: Path) -> None:
    sources = load_sources(write_results(tmp_path))
    table = contents(sources)[-1].tables[0]
    assert [row[0] for row in table.cells()] == [
        "bench/adapt.json", "cross/result.json", "intra-ptb/result.json",
        "intra-ptb-part/result.json",
        "odd/result.json", "online/result.json", "permuted/result.json", "tuned-ptb/tuned.json",
    ]  # fmt: skip
    assert all(row[2] and row[3] and len(str(row[4])) == 16 for row in table.cells())


def test_a_single_kind_makes_a_book_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "tuned.json", tuned())
    titles = [section.title for section in contents(load_sources(tmp_path))]
    assert titles == ["Tuning", "Where the numbers come from"]


def test_runs_with_equal_settings_differ_in_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        within().save(tmp_path / name)
    sections = {section.title: section for section in contents(load_sources(tmp_path))}
    assert [table.name for table in sections["ptb test: its runs side by side"].tables] == [
        "scenarios"
    ]
    changed = replace(within(), memory={"content": "train", "k": 20, "entries": 5})
    changed.save(tmp_path / "two")
    tables = {s.title: s for s in contents(load_sources(tmp_path))}[
        "ptb test: its runs side by side"
    ].tables
    assert tables[1].columns[1].header == "one"
    assert ("memory.content", "both", "train") in tables[1].cells()
    assert not [row for row in tables[1].cells() if "entries" in str(row[0])]


def test_plain_settings_of_single_methods_are_told_apart(tmp_path: Path) -> None:
    result = within()
    for name, theta, every in (("one", 0.5, 100), ("two", 7.0, 1)):
        other = replace(result.methods["mixture"], hyperparameters={"theta": theta})
        scenario = replace(result.scenario, extra={"update_every": every, "vocabulary_size": every})
        replace(result, scenario=scenario, methods={**result.methods, "mixture": other}).save(
            tmp_path / name
        )
    tables = {s.title: s for s in contents(load_sources(tmp_path))}[
        "ptb test: its runs side by side"
    ].tables
    assert tuple(tables[1].cells()) == (("update_every", "100", "1"), ("mixture.theta", "0.5", "7"))


def test_a_setting_differs_only_between_runs_that_have_it(tmp_path: Path) -> None:
    result = within()
    plain = {"dynamic": {"lr": 0.1}, "adaptation": {"theta": 2.0, "gamma": 0.5}}
    other = {"dynamic": {"lr": 0.1}, "adaptation": {"theta": 2.0, "gamma": 0.4}}
    result.save(tmp_path / "without")
    for name, values in (("other", other), ("plain", plain)):
        item = replace(result.methods["mixture"], hyperparameters=values)
        replace(result, methods={**result.methods, "dynamic+mixture": item}).save(tmp_path / name)
    tables = {s.title: s for s in contents(load_sources(tmp_path))}[
        "ptb test: its runs side by side"
    ].tables
    assert tuple(tables[1].cells()) == (("dynamic_mixture.gamma", "0.4", "0.5", None),)


def test_new_words_by_occurrence_stand_side_by_side(tmp_path: Path) -> None:
    for name, vocabulary in (("cross", "union"), ("cross-open", "open")):
        result = sample_result(3000)
        replace(result, scenario=replace(result.scenario, vocabulary=vocabulary)).save(
            tmp_path / name
        )
    sections = {section.title: section for section in contents(load_sources(tmp_path))}
    tables = {
        table.name: table for table in sections["wt2-to-ptb test: its runs side by side"].tables
    }
    assert list(tables) == ["scenarios", "occurrences-by-run", "differences"]
    table = tables["occurrences-by-run"]
    assert [table.cells()[at][0] for at in table.headings] == [
        "cross (lower, union), tokens", "cross-open (lower, open), tokens",
    ]  # fmt: skip


def test_unknown_shapes_of_models_are_other() -> None:
    assert preset_of(within()) == "small, 16 epochs"
    assert preset_of(replace(within(), model={"parameters": 5})) == "other"


def test_what_only_repeats_another_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "tuned" / "tuned.json", tuned())
    write(tmp_path / "tuned" / "config.json", {"values": {"mbpa.lr": 5.0}})
    write(tmp_path / "alone" / "config.json", {"values": {}})
    sources = load_sources(tmp_path)
    assert list(sources.unknown) == ["alone/config.json"]
    assert list(sources.origins) == ["tuned/tuned.json"]


def test_readings_are_one_table_for_all_texts(tmp_path: Path) -> None:
    for name in ("ptb", "wt2"):
        write(tmp_path / name / "readings.json", readings(name))
    sections = {section.title: section for section in contents(load_sources(tmp_path))}
    chapter = sections["What the paper leaves open"]
    assert len(chapter.lines) == 2
    (table,) = chapter.tables
    assert [(column.header, column.subheader) for column in table.columns[2:]] == [
        ("Mixture", "ptb valid"), ("Hebb", "ptb valid"), ("Mixture", "wt2 valid"), ("Hebb",
        "wt2 valid"),
    ]  # fmt: skip
    assert tuple(table.cells()) == (
        ("default", None, "4.500", "4.600", "4.500", "4.600"),
        ("larger eps", "mbpa.eps = 0.1", None, "+0.020*", None, "+0.020*"),
    )


def columns_of(alignment: str) -> int:
    """Return how many columns a LaTeX alignment has."""
    return len(re.findall(r"[lr]", re.sub(r"p\{[^}]*\}", "l", alignment)))


def check_latex(text: str) -> int:
    """Check that environments and braces close in order and that every row fits its table; return
    the tables.

    What stands before the document is macros, which no text gets into.
    """
    text = text[max(0, text.find(r"\begin{document}")) :]
    plain = re.sub(r"\\[\\{}$&#%_]", " ", text)
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[#_%]", re.sub(r"\\(label|includegraphics)\S*", "", text))
    tables = re.findall(
        r"\\begin\{tabular\}\{((?:[lr]|p\{[^}]*\})+)\}(.*?)\\end\{tabular\}", text, re.DOTALL
    )
    for alignment, body in tables:
        rows = [line for line in body.splitlines() if line.rstrip().endswith(r"\\")]
        assert rows
        for row in rows:
            assert row.count("&") - row.count(r"\&") == columns_of(alignment) - 1, row
    return len(tables)


def test_latex_is_well_formed(book: Path) -> None:
    tex = (book / "book.tex").read_text("utf-8")
    assert check_latex(tex) == tex.count(r"\begin{tabular}") > 10


@pytest.mark.parametrize(
    "text",
    [
        r"\begin{table}", r"\begin{a}\begin{b}\end{a}\end{b}", "{", "}{", "$", "50 %",
        "\\begin{tabular}{lr}\na & b & c \\\\\n\\end{tabular}",
    ],
)  # fmt: skip
def test_broken_latex_is_noticed(text: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        check_latex(text)


@pytest.mark.parametrize(
    ("name", "document", "named"),
    [
        ("result.json", None, "no JSON file"),
        ("result.json", "{", "not valid JSON"),
        ("a/result.json", {"schema": "hebblm-result/1"}, "lacks"),
        (
            "a/tuned.json",
            {**tuned(), "nll": {"lstm": "low"}},
            "nll[...] must be a number, not {'lstm': 'low'}",
        ),
        ("a/tuned.json", {"schema": "hebblm-tuned/1"}, "lacks 'values'"),
        ("b.json", {"schema": "hebblm-bench/1"}, "recipes.bench"),
        ("c/result.json", permuted(methods={"mlp": {}}), "c lacks parts"),
        ("c/result.json", permuted(settings={}), "c lacks parts"),
        ("d/result.json", {"schema": "hebblm-vision/1"}, "'provenance'"),
    ],
)
def test_a_bad_file_is_one_line_and_no_book(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, document: object, named: str
) -> None:
    root, out = tmp_path / "results", tmp_path / "book"
    if isinstance(document, str):
        write(root / name, None)
        (root / name).write_text(document)
    elif document is not None:
        write(root / name, document)
    assert main(["book", str(root), "--output-path", str(out)]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert len(error.strip().splitlines()) == 1
    assert not out.exists()


def test_committed_results_make_a_book() -> None:
    recipes = Path(__file__).resolve().parents[3] / "recipes"
    root = recipes / "results"
    sources = load_sources(root)
    sections = contents(sources)
    text = markdown(TITLE, sections)
    assert all(f"\n## {title}\n" in text for title in CHAPTERS)
    check_latex(latex(TITLE, sections))
    drawn = [picture.name for section in sections for picture in section.pictures]
    assert len(drawn) == len(set(drawn))
    assert {"wt2-to-ptb-frequency", "intra-ptb-running", "online-online", "cost"} <= set(drawn)
    assert not sources.unknown
    assert set(sources.origins) == {
        path.relative_to(root).as_posix() for path in root.rglob("*.json")
    }
    numbers = json.loads((root / "intra-ptb" / "result.json").read_text())["methods"]
    counting = [table for table in sections[0].tables if table.name in get_args(Outcome)]
    runs = [row[1] for table in counting for row in table.cells() if "ptb test" in str(row[0])]
    assert "intra-ptb-paper" not in runs, "values of the paper are told apart"
    texts = [row[0] for table in counting for row in table.cells()]
    assert len(texts) == len(set(texts)), "each claim counts once"
    claims = {
        str(row[0]): row for table in counting for row in table.cells() if row[1] == "intra-ptb"
    }
    row = claims["Hebb better than MbPA, ptb test"]
    assert row[3] == pytest.approx(numbers["mbpa"]["nll"] - numbers["hebb"]["nll"])
    assert all(isinstance(section, Section) for section in sections)
