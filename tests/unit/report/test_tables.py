from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from hebblm.report.render.result import Result
from hebblm.report.render.table import (
    best_cells,
    single_headers,
    texts,
    to_csv,
    to_html,
    to_markdown,
)
from hebblm.report.result.methods import looks, name_of, ordered
from hebblm.report.result.numbers import Interval, Kind
from hebblm.report.result.parts import OCCURRENCES, Gain, recombine
from hebblm.report.tables.by_part import (  # fmt: skip
    frequency_table,
    gain_rows,
    gain_table,
    occurrence_table,
    occurrences_by_run,
    paired_table,
)
from hebblm.report.tables.overall import by_loss, comparison_table, runs_table
from hebblm.report.tables.table import Column, Table
from hebblm.report.tables.texts import MAX_DOCUMENTS, document_table

from .samples import ACCURACY, sample_result


def _contest(*values: float | None, **options: object) -> Table:
    column = replace(Column("Nats", "nll", "min"), **options)  # type: ignore[arg-type]
    return Table.of_cells(
        "t",
        "T",
        (Column("Method"), column),
        tuple((f"m{i}", value) for i, value in enumerate(values)),
    )


def test_methods_come_in_one_order() -> None:
    assert ordered(["hebb-v1", "mixture+hebb", "hebb", "cache", "lstm", "knn", "dynamic"]) == [
        "lstm", "dynamic", "cache", "knn", "hebb", "mixture+hebb", "hebb-v1",
    ]  # fmt: skip


def test_every_method_has_its_own_look() -> None:
    methods = [*sample_result(100).methods, "hebb-v2", "hebb-v3", "hebb-250", "hebb-500", "mine"]
    drawn = {(look.color, look.line) for look in looks(methods).values()}
    assert len(drawn) == len(methods)
    assert name_of("cache+hebb-v1") == "Cache+Hebb-v1"
    assert name_of("mine") == "mine"


def test_comparison_within_one_domain_has_no_column_of_new_words() -> None:
    table = comparison_table(sample_result(500, source="ptb", target="ptb"))
    assert not {"Nats, new words", "Nats, known words"} & {item.header for item in table.columns}
    assert {"Nats, new words", "Nats, known words"} <= {
        item.header for item in comparison_table(sample_result(500)).columns
    }


def test_comparison_holds_the_numbers_of_the_result() -> None:
    result = sample_result(500)
    rows = {row[0]: row for row in comparison_table(result).cells()}
    hebb = result.methods["hebb"]
    assert rows["Hebb"][1:] == (
        hebb.perplexity, hebb.nll, hebb.oov_nll, hebb.in_vocabulary_nll, hebb.tokens_per_second, 3,
    )  # fmt: skip


def test_queries_whose_loss_rose_are_counted_where_there_are_any() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    assert "Queries whose loss rose" in to_markdown(comparison_table(result))
    calm = replace(result.methods["hebb"], rose_queries=0)
    table = comparison_table(replace(result, methods={**result.methods, "hebb": calm}))
    assert "loss rose" not in to_markdown(table)


def test_subword_columns_appear_only_with_values() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    assert "Bits/byte" not in [column.header for column in comparison_table(result).columns]
    subword = replace(result.methods["hebb"], bits_per_byte=1.25, words_perplexity=99.0)
    table = comparison_table(replace(result, methods={**result.methods, "hebb": subword}))
    assert [column.header for column in table.columns][-2:] == ["Bits/byte", "Word perplexity"]
    cells = {row[0]: row[-2:] for row in texts(table)}
    assert cells == {"Hebb": ["1.2500", "99.00"], "Base": ["-", "-"]}


def test_frequency_table_has_counts_in_its_header_and_all_last() -> None:
    result = sample_result(500)
    table = frequency_table(result)
    headers = [column.header for column in table.columns]
    assert headers == ["Training count", "<50", "50-100", "100-500", ">500", "All"]
    counts = [column.subheader for column in table.columns[1:]]
    assert sum(int(count) for count in counts[:-1]) == counts[-1] == 500
    assert table.cells()[0][-1] == result.methods["lstm"].perplexity
    assert recombine(result.methods["lstm"].frequency) == pytest.approx(
        result.methods["lstm"].nll, abs=1e-12
    )
    assert table.notes == (), "the buckets give back the whole"
    off = replace(result.methods["hebb"], nll=result.methods["hebb"].nll + 0.002)
    table = frequency_table(replace(result, methods={**result.methods, "hebb": off}))
    assert table.notes == ("Token-weighted, the buckets miss All by up to 2.0e-03 nats.",)


def test_a_method_with_other_buckets_is_named_not_mixed_in() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    other = replace(result.methods["hebb"], frequency=result.methods["hebb"].frequency[:2])
    table = frequency_table(replace(result, methods={**result.methods, "hebb": other}))
    assert [row[0] for row in table.cells()] == ["Base"]
    assert table.notes[0] == "Evaluated with other buckets: Hebb."


def test_best_is_shared_by_cells_that_read_the_same() -> None:
    assert best_cells(_contest(2.00001, 2.00002, 3.0)) == {(0, 1), (1, 1)}
    assert best_cells(_contest(2.0, None, math.inf)) == {(0, 1)}
    assert best_cells(_contest(1.0, 2.0, best="max")) == {(1, 1)}
    for none in (
        _contest(2.0, None),
        _contest(2.0, 2.0),
        _contest(None, None),
        _contest(1.0, 2.0, best=None),
    ):
        assert best_cells(none) == frozenset()


def test_the_best_is_sought_in_each_block_and_blocks_are_set_apart() -> None:
    rows = (
        ("one, tokens", "1,000"),
        ("a", 1.0),
        ("b", 2.0),
        ("two, tokens", "2,000"),
        ("a", 4.0),
        ("b", 3.0),
    )
    table = Table.of_cells(
        "blocks",
        "Blocks",
        (Column("x"), Column("y", "nll", "min", decimals=1)),
        rows,
        headings=(0, 3),
    )
    assert best_cells(table) == {(1, 1), (5, 1)}
    assert to_markdown(table).splitlines()[4:] == [
        "| *one, tokens* | 1,000 |", "| a | **1.0** |", "| b | 2.0 |",
        "| *two, tokens* | 2,000 |", "| a | 4.0 |", "| b | **3.0** |",
    ]  # fmt: skip
    html = to_html(table)
    headings = html.split('class="heading"><td class="text">')[1:]
    assert [part.partition("</td>")[0] for part in headings] == [
        "one, tokens", "two, tokens",
    ]  # fmt: skip


def test_a_ragged_table_is_a_defect() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table.of_cells("t", "T", (Column("a"),), (("x", "y"),))


def test_a_row_has_values_of_known_columns_each_of_its_own_name() -> None:
    table = Table("t", "T", [Column("a"), Column("b", "nll")], [{"b": 1.0}, {"a": "x", "b": 2.0}])
    assert table.cells() == [(None, 1.0), ("x", 2.0)]
    assert table.column("a") == [None, "x"]
    with pytest.raises(ValueError, match=r"no column: \['c'\]"):
        Table("t", "T", [Column("a")], [{"c": 1.0}])
    with pytest.raises(ValueError, match="several columns are called 'a'"):
        Table("t", "T", [Column("a"), Column("a")], [])
    cells = Table.of_cells("t", "T", [Column("a"), Column("a")], [("x", "y")])
    assert cells.rows == ({"a": "x", "a 1": "y"},)
    assert single_headers(cells) == ["a", "a"]


def test_columns_without_a_value_are_left_out() -> None:
    table = Table("t", "T", [Column("a"), Column("b")], [{"a": "x", "b": None}]).without_empty()
    assert (table.cells(), [column.header for column in table.columns]) == ([("x",)], ["a"])


@pytest.mark.parametrize(
    ("interval", "kind", "text"),
    [
        (Interval(0.25, 0.2, 0.3), "tested", "+0.250 ±.050*"),
        (Interval(0.25, 0.2, 0.3), "interval", "+0.250 ±.050"),
        (Interval(0.25, -0.1, 0.6), "tested", "+0.250 ±.350"),
        (Interval(-2.5, -4.0, -1.0), "tested", "-2.500 ±1.500*"),
        (Interval(0.25, None, None), "tested", "+0.250"),
        (Interval(None, None, None), "tested", "-"),
    ],
)
def test_an_interval_reads_as_half_of_its_width(interval: Interval, kind: Kind, text: str) -> None:
    table = Table("t", "T", [Column("Gain", kind, decimals=3)], [{"Gain": interval}])
    assert texts(table) == [[text]]
    assert to_csv(table) == f"Gain\n{text}\n"


def test_markdown_is_bold_for_the_best_and_escaped() -> None:
    table = Table.of_cells(
        "t",
        "A|B",
        (Column("Word"), Column("Nats", "nll", "min")),
        (("<unk>|*", 1.0), ("b", 2.0)),
        ("n_1",),
    )
    assert to_markdown(table) == (
        "## A\\|B\n\n| Word | Nats |\n| :-- | --: |\n| \\<unk\\>\\|\\* | **1.0000** |\n| b | "
        "2.0000 |\n\nn\\_1\n"
    )


def test_infinity_reads_the_same_everywhere() -> None:
    table = _contest(1.0, math.inf)
    assert "| m1 | inf |" in to_markdown(table)
    assert "m1,inf\n" in to_csv(table)


def test_csv_reads_back_exactly() -> None:
    result = sample_result(300)
    rows = {
        row["Method"]: row for row in csv.DictReader(io.StringIO(to_csv(comparison_table(result))))
    }
    assert float(rows["Base"]["Nats"]) == result.methods["lstm"].nll
    assert rows["Base"]["Queries whose loss rose"] == ""
    frequency = list(csv.DictReader(io.StringIO(to_csv(frequency_table(result)))))
    assert frequency[0]["All"] == "300"


def test_side_by_side_fills_gaps_with_dashes() -> None:
    table = runs_table(
        {
            "across": sample_result(200, methods=("lstm", "hebb")),
            "within": sample_result(200, source="ptb", target="ptb", methods=("lstm", "mbpa")),
        }
    )
    assert single_headers(table) == [
        "Method",
        "Nats (across)",
        "Nats, new words (across)",
        "Perplexity (within)",
    ]
    text = {row[0]: row[1:] for row in texts(table)}
    assert list(text) == ["Base", "MbPA", "Hebb"]
    assert text["MbPA"][:2] == ["-", "-"]
    assert text["Hebb"][2] == "-"


def test_runs_of_one_text_compare_by_bits_whatever_their_tokens_are() -> None:
    def of(source: str, tokens: int, bits: float, **extra: object) -> Result:
        result = sample_result(200, methods=("lstm", "hebb"))
        scenario = replace(result.scenario, source=source, tokens=tokens, extra=extra)
        items = {name: replace(item, bits_per_byte=bits) for name, item in result.methods.items()}
        return replace(result, scenario=scenario, methods=items)

    one, two = of("wt2", 200, 1.5, whole_split=True), of("pydoc", 170, 1.25, whole_split=True)
    table = runs_table({"one": one, "two": two}, bits=True)
    assert single_headers(table)[-1] == "Bits/byte (two)"
    assert table.notes == (
        "The models differ, and so may their tokens: between runs compare bits a byte.",
    )
    assert "Bits/byte" not in [
        column.header for column in runs_table({"one": one, "two": two}).columns
    ]
    part = of("pydoc", 170, 1.25, whole_split=False)
    assert "different texts or lengths" in runs_table({"one": one, "part": part}).notes[0]


def test_gains_over_each_other_have_signs_and_the_better_method_stands_first() -> None:
    result = Result.load(ACCURACY)
    table = paired_table(result)
    assert table is not None
    assert [row[0] for row in table.cells()][:2] == [
        "Best (ours), over MbPA",
        "Best (ours), over kNN-LM",
    ]
    assert len(table.cells()) == 6
    assert [column.header for column in table.columns][1:4] == ["All", "New words", "<50"]
    assert table.columns[1].subheader == 3000
    assert texts(table)[0][1] == "+0.257 ±.067*"
    assert table.cells()[-1][0] == "kNN-LM, over Cache"
    assert paired_table(sample_result(100)) is None


def test_documents_are_the_worst_first_under_the_best_methods() -> None:
    result = sample_result(300)
    names = list(result.methods)
    documents = [
        {
            "name": f"{i}.txt",
            "tokens": i,
            "nll": dict.fromkeys(names, 1.0 / i),
            "bytes": 2 * i,
            "bits_per_byte": dict.fromkeys(names, 1.0 / i),
        }
        for i in range(MAX_DOCUMENTS + 2, 0, -1)
    ]
    assert document_table(result) is None
    listed = replace(result, extra={"documents": documents})
    table = document_table(listed)
    assert table is not None
    assert [row[0] for row in table.cells()] == [f"{i}.txt" for i in range(1, MAX_DOCUMENTS + 1)]
    shown = by_loss(result)[:2]
    shown = list(dict.fromkeys([*shown, "lstm"]))
    assert [column.header for column in table.columns] == [
        "Document",
        "Tokens",
        *map(name_of, shown * 2),
    ]
    assert table.cells()[1][1:] == (2, *[math.exp(0.5)] * len(shown), *[0.5] * len(shown))
    assert table.notes == ("All documents stand in result.json; by_document=True lists them.",)
    whole = document_table(listed, None)
    assert whole is not None
    assert len(whole.cells()) == MAX_DOCUMENTS + 2
    assert not whole.notes


def test_occurrences_stand_in_order_with_their_tokens_and_all_last() -> None:
    result = sample_result(3000)
    table = occurrence_table(result)
    assert table is not None
    assert [column.header for column in table.columns] == ["Occurrence", *OCCURRENCES, "All"]
    counts = [int(column.subheader) for column in table.columns[1:]]
    assert sum(counts[:-1]) == counts[-1] == result.scenario.oov_tokens
    hebb = result.methods["hebb"]
    row = next(row for row in table.cells() if row[0] == "Hebb")
    assert row[1:] == (*(bucket.nll for bucket in hebb.oov_occurrences), hebb.oov_nll)
    assert len(table.notes) == 1, "the buckets give back the whole"
    assert occurrence_table(sample_result(200, source="ptb", target="ptb")) is None


def test_runs_stand_in_blocks_with_their_policies_and_tokens() -> None:
    lower = sample_result(3000, methods=("lstm", "hebb"))
    opened = replace(lower, scenario=replace(lower.scenario, vocabulary="open"))
    within = sample_result(200, source="ptb", target="ptb")
    table = occurrences_by_run({"a": lower, "ptb": within, "b": opened})
    assert table is not None
    assert table.headings == (0, 3)
    assert [row[0] for row in table.cells()] == [
        "a (lower, union), tokens", "Base", "Hebb", "b (lower, open), tokens", "Base", "Hebb",
    ]  # fmt: skip
    single = occurrence_table(lower)
    assert single is not None
    assert table.cells()[1:3] == table.cells()[4:] == single.cells()
    assert [column.header for column in table.columns[1:]] == [
        column.header for column in single.columns[1:]
    ]
    assert texts(table)[0][1:] == [f"{column.subheader:,}" for column in single.columns[1:]]
    assert occurrences_by_run({"a": lower, "ptb": within}) is None


def test_an_infinite_loss_is_shown() -> None:
    result = sample_result(3000, methods=("lstm", "hebb"))
    item = result.methods["hebb"]
    first = replace(item.oov_occurrences[0], nll=math.inf, perplexity=math.inf)
    broken = replace(item, oov_nll=math.inf, oov_occurrences=(first, *item.oov_occurrences[1:]))
    table = occurrence_table(replace(result, methods={**result.methods, "hebb": broken}))
    assert table is not None
    assert texts(table)[1][1] == texts(table)[1][-1] == "inf"


def test_gains_carry_their_interval_and_a_mark_where_it_leaves_out_zero() -> None:
    result = sample_result(300, methods=("lstm", "hebb", "mbpa"))
    parts = [
        Gain("All", 300, 0.1234, 0.1, 0.15), Gain("OOV", 5, -2.0, -3.5, -0.5), Gain("Known", 295,
        0.1, 0.0, 0.2),
        Gain("<50", 20, 0.05, -0.02, 0.06), Gain(">50", 280, 0.2, None, None), Gain("OOV 1st", 2,
        0.5, 0.1, 0.9),
    ]  # fmt: skip
    unknown = [replace(gain, gain=None, low=None, high=None) for gain in parts[:4]]
    methods = {
        "lstm": replace(result.methods["lstm"], gains=()),
        "mbpa": replace(result.methods["mbpa"], gains=tuple(parts)),
        "hebb": replace(result.methods["hebb"], gains=tuple(unknown)),
    }
    table = gain_table(replace(result, methods=methods))
    assert table is not None
    assert [column.header for column in table.columns] == [
        "Training count",
        "All",
        "New words",
        "<50",
        ">50",
    ]
    assert [column.subheader for column in table.columns[1:]] == [300, 5, 20, 280]
    assert texts(table) == [
        ["MbPA", "+0.123 ±.025*", "-2.000 ±1.500*", "+0.050 ±.040", "+0.200"],
        ["Hebb", "-", "-", "-", "-"],
    ]
    assert "95 % interval" in table.notes[0]
    assert "1,000 resamples of blocks of 200 tokens" in table.notes[0]
    rows = list(csv.DictReader(io.StringIO(to_csv(gain_rows(replace(result, methods=methods))))))
    assert [row["Part"] for row in rows[:6]] == [gain.part for gain in parts]
    assert float(rows[1]["Low"]) == -3.5
    assert rows[-1]["Gain"] == rows[4]["High"] == ""
    assert gain_table(sample_result(200, methods=("hebb", "mbpa"))) is None, (
        "without the unadapted model"
    )
