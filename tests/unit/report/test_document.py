from __future__ import annotations

import io
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hebblm.cli.report import main as report
from hebblm.errors import UserError
from hebblm.report import Result, print_summary, write_comparison, write_report
from hebblm.report.render.document import print_comparison
from hebblm.report.render.table import to_html, to_markdown
from hebblm.report.result.methods import name_of
from hebblm.report.tables.facts import flatten, scenario_line
from hebblm.report.tables.overall import runs_table
from hebblm.report.tables.table import Column, Table

from .samples import ACCURACY, Page, sample_result, sample_tokens
from .test_tokens import write_parquet


@pytest.mark.usefixtures("drawn_pictures")
def test_every_format_is_written(tmp_path: Path) -> None:
    formats = ("md", "csv", "html", "png", "svg")
    written = write_report(
        sample_result(300), tmp_path / "out", formats=formats, tokens=sample_tokens(300)
    )
    names = {path.name for path in written}
    assert names == {
        "report.md", "report.html",
        "comparison.csv", "frequency.csv", "gains.csv", "occurrences.csv", "words.csv",
        "comparison.png", "frequency.png", "occurrences.png", "running.png",
        "comparison.svg", "frequency.svg", "occurrences.svg", "running.svg",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert all(path.stat().st_size > 0 for path in written)


GONE = ("mixture-gated", "mbpa-guarded", "dynamic+mixture+cache")  # methods of earlier versions


def test_a_result_with_methods_that_are_gone_loads_and_renders(tmp_path: Path) -> None:
    result, item = sample_result(300), sample_result(300).methods["hebb"]
    written = replace(
        item, hyperparameters={"hebb_learned": {"n1": 0.4}, "tempered": {"hebb_learned": 1.1}}
    )
    replace(result, methods={**result.methods, **dict.fromkeys(GONE, written)}).save(tmp_path)
    write_report(Result.load(tmp_path), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for name in GONE:
        assert f"| {name_of(name)} |" in text
    assert "n1 = 0.4" in text


def test_markdown_states_policies_settings_and_origin(tmp_path: Path) -> None:
    write_report(sample_result(300), tmp_path, formats=("md", "png"))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    head = text.split("## ")[0]
    assert "normalization lower, vocabulary union, 300 tokens" in head
    assert "content" not in head, "how the memory works stands behind the tables"
    assert "| content | both |" in text
    assert "| update every | 100 |" in text
    assert "lr = 0.1, steps = 5, gate = gated" in text
    assert "| commit | 0123abc |" in text
    assert "| versions.torch | 2.13.0 |" in text
    assert "| seed | 1 |" in text
    pictures = [
        line.split("(")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")
    ]
    assert len(pictures) == 4
    assert all((tmp_path / name).exists() for name in pictures)
    write_report(sample_result(200), tmp_path, formats=("md",))
    assert "![" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_html_is_whole_and_needs_nothing_beside_it(tmp_path: Path) -> None:
    write_report(sample_result(300), tmp_path, formats=("html",))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    images = [value for name, value in page.attributes if name == "src"]
    assert len(images) == 4
    assert all(
        source is not None and source.startswith("data:image/png;base64,") for source in images
    )
    assert not {"script", "link"} & set(page.tags)
    assert "<50" in page.text


def test_what_few_readers_need_is_folded_and_has_plain_names(tmp_path: Path) -> None:
    write_report(Result.load(ACCURACY), tmp_path, formats=("html",))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown, *folded = html.split("<details>")
    assert "<h1>pydoc-to-numpy test</h1>" in shown
    assert "Keys saved" in shown
    assert "Perplexity by frequency in training" in shown
    titles = [part.partition("<summary>")[2].partition("</summary>")[0] for part in folded]
    assert titles == [
        "Gains of methods over each other, nats a token", "Where the time goes", "Scenario",
        "Model", "Memory",
        "Hyper-parameters", "Provenance",
    ]  # fmt: skip
    for internal in ("paired.", "lead.", "bootstrap", "_"):
        assert internal not in folded[2]
    assert "flush" not in shown


def test_a_report_leads_to_the_page_of_its_tokens_or_says_how_to_make_it(tmp_path: Path) -> None:
    run, out = tmp_path / "a run", tmp_path / "out"
    result = sample_result(200)
    result.save(run)

    def said() -> str:
        write_report(result, out, formats=("html", "md"), run=run)
        pages = [(out / f"report.{name}").read_text(encoding="utf-8") for name in ("md", "html")]
        return "".join(pages).replace("\\_", "_")  # Markdown escapes them

    assert said().count("log_samples=True and log_neighbors=2000") == 2
    write_parquet(run / "tokens.parquet", sample_tokens(200))
    text = said()
    assert "log_samples" not in text
    command = Page(text).text.rpartition("run hebblm-report ")[2].partition("\n")[0]
    assert report(shlex.split(command)) == 0
    text = said()
    assert "](../a%20run/inspect.html)" in text
    assert '<a href="../a%20run/inspect.html">' in text
    os.utime(run / "inspect.html", (0, 0))
    assert "a%20run" not in said(), "a page of a former run is not linked"


def test_html_escapes_what_comes_from_outside(tmp_path: Path) -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    evil = replace(
        result,
        provenance={"command": "<script>alert(1)</script>"},
        scenario=replace(result.scenario, target="<b>&\"'"),
    )
    write_report(evil, tmp_path, formats=("html",))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not {"script", "b"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text


def test_no_text_of_a_table_is_markup_or_a_template() -> None:
    evil = '{{ 7 * 7 }}{% x %}</script>"'
    table = Table.of_cells("t", evil, (Column(evil, subheader=evil),), ((evil,),), (evil,))
    assert to_html(table).count("{{ 7 * 7 }}{% x %}&lt;/script&gt;&quot;") == 5
    assert to_markdown(table).count(r'{{ 7 \* 7 }}{% x %}\</script\>"') == 5
    assert evil not in to_html(table) + to_markdown(table)


def test_an_unknown_format_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown format 'tex'"):
        write_report(sample_result(100), tmp_path / "out", formats=("md", "tex"))
    with pytest.raises(UserError, match="format"):
        write_report(sample_result(100), tmp_path / "out", formats=())
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UserError, match="cannot write"):
        write_report(sample_result(100), tmp_path / "file", formats=("md",))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_new_words_stand_side_by_side_where_several_results_have_them(tmp_path: Path) -> None:
    results = {"one": sample_result(300), "two": sample_result(200)}
    written = {path.name for path in write_comparison(results, tmp_path)}
    assert written == {
        "occurrences-by-run.csv",
        *(f"scenarios.{suffix}" for suffix in ("csv", "html", "md")),
    }
    stream = io.StringIO()
    print_comparison(results, Console(file=stream, width=90, color_system=None))
    for text in ((tmp_path / "scenarios.md").read_text(encoding="utf-8"), stream.getvalue()):
        assert text.index("one (lower, union), tokens") < text.index("two (lower, union), tokens")


@pytest.mark.parametrize("width", [60, 160])
def test_the_summary_is_a_verdict_the_scenario_and_one_table(width: int) -> None:
    result = sample_result(3000)
    stream = io.StringIO()
    print_summary(result, Console(file=stream, width=width, color_system=None))
    text = stream.getvalue()
    head, _, rest = text.partition("\n\n")
    assert " ".join(head.split()) == result.verdict()
    assert rest.startswith("wt2-to-ptb test (cross-domain): normalization lower")
    assert rest.count("Methods on wt2-to-ptb test") == (2 if width == 60 else 1)
    for internal in ("miss All", "Loss rose", "Training count", "*"):
        assert internal not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert len(text.splitlines()) < 25 or width == 60


def test_reports_open_with_the_verdict_and_new_words_are_pictured_right_behind_it(
    tmp_path: Path,
) -> None:
    result = sample_result(3000)
    write_report(result, tmp_path, formats=("md", "html", "png"))
    caption = "Loss on new words by occurrence"
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.count(caption) == 1
        assert text.index("Lowest loss") < text.index(caption) < text.index("normalization lower")
    assert Page(text).text.count(result.verdict()) == 1
    write_report(sample_result(300, source="ptb", target="ptb"), tmp_path, formats=("html",))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.index("<table>") < text.index("<img"), (
        "without new words no picture comes before the tables"
    )


def test_runs_side_by_side_have_a_verdict_each() -> None:
    results = {"one": sample_result(3000), "two": sample_result(2800, methods=("lstm", "cache"))}
    stream = io.StringIO()
    print_comparison(results, Console(file=stream, width=1000, color_system=None))
    said = stream.getvalue()
    assert said.startswith(f"one: {results['one'].verdict()}\n")
    assert f"\ntwo: {results['two'].verdict()}\n" in said
    assert "The runs are of different texts or lengths" in said
    alike = {"one": sample_result(3000), "two": sample_result(3000)}
    assert not runs_table(alike).notes


def test_settings_are_flattened() -> None:
    values = {"a": {"b": 1, "c": None}, "d": [1, 2.5], "e": True, "f": 1e-4}
    assert flatten(values) == [
        ("a.b", "1"),
        ("a.c", "none"),
        ("d", "1, 2.5"),
        ("e", "yes"),
        ("f", "0.0001"),
    ]


def test_a_part_of_a_split_is_called_so() -> None:
    result = sample_result(300)

    def line(**said: object) -> str:
        return scenario_line(replace(result, scenario=replace(result.scenario, extra=said)))

    assert f", {result.scenario.tokens:,} tokens" in line(whole_split=True)
    assert ", only the first 300 tokens" in line(whole_split=False)
    assert ", only the first 300 of 1,234 tokens" in line(whole_split=False, split_tokens=1234)
    assert ", window of 4,096, " in scenario_line(
        replace(result, model={**result.model, "context": 4096})
    )
