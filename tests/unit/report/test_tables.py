from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from hebblm.report.buckets import recombine
from hebblm.report.methods import looks, name_of, ordered
from hebblm.report.render import to_csv, to_html, to_markdown
from hebblm.report.table import Column, Table
from hebblm.report.tables import comparison_table, frequency_table, side_by_side

from .samples import sample_result


def _contest(*values: float | None, **options: object) -> Table:
    column = replace(Column("Nats", "nll", "min"), **options)  # type: ignore[arg-type]
    return Table("t", "T", (Column("Method"), column), tuple((f"m{i}", value) for i, value in enumerate(values)))


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
    assert not {"OOV nats", "Known nats"} & {item.header for item in table.columns}
    assert {"OOV nats", "Known nats"} <= {item.header for item in comparison_table(sample_result(500)).columns}


def test_comparison_holds_the_numbers_of_the_result() -> None:
    result = sample_result(500)
    rows = {row[0]: row for row in comparison_table(result).rows}
    hebb = result.methods["hebb"]
    assert rows["Hebb"][1:] == (
        hebb.perplexity, hebb.nll, hebb.oov_nll, hebb.in_vocabulary_nll, hebb.tokens_per_second, 3,
    )  # fmt: skip


def test_queries_whose_loss_rose_are_counted_where_there_are_any() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    assert "Loss rose" in to_markdown(comparison_table(result))
    calm = replace(result.methods["hebb"], rose_queries=0)
    table = comparison_table(replace(result, methods={**result.methods, "hebb": calm}))
    assert "Loss rose" not in to_markdown(table)


def test_subword_columns_appear_only_with_values() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    assert "Bits/byte" not in [column.header for column in comparison_table(result).columns]
    subword = replace(result.methods["hebb"], bits_per_byte=1.25, words_perplexity=99.0)
    table = comparison_table(replace(result, methods={**result.methods, "hebb": subword}))
    assert [column.header for column in table.columns][-2:] == ["Bits/byte", "Word perplexity"]
    cells = {row[0]: row[-2:] for row in table.text()}
    assert cells == {"Hebb": ["1.2500", "99.00"], "Base": ["-", "-"]}


def test_frequency_table_has_counts_in_its_header_and_all_last() -> None:
    result = sample_result(500)
    table = frequency_table(result)
    headers = [column.header for column in table.columns]
    assert headers == ["Training count", "<50", "50-100", "100-500", ">500", "All"]
    counts = [column.subheader for column in table.columns[1:]]
    assert sum(int(count) for count in counts[:-1]) == counts[-1] == 500
    assert table.rows[0][-1] == result.methods["lstm"].perplexity
    assert recombine(result.methods["lstm"].frequency) == pytest.approx(result.methods["lstm"].nll, abs=1e-12)
    assert table.notes == (), "the buckets give back the whole"
    off = replace(result.methods["hebb"], nll=result.methods["hebb"].nll + 0.002)
    table = frequency_table(replace(result, methods={**result.methods, "hebb": off}))
    assert table.notes == ("Token-weighted, the buckets miss All by up to 2.0e-03 nats.",)


def test_a_method_with_other_buckets_is_named_not_mixed_in() -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    other = replace(result.methods["hebb"], frequency=result.methods["hebb"].frequency[:2])
    table = frequency_table(replace(result, methods={**result.methods, "hebb": other}))
    assert [row[0] for row in table.rows] == ["Base"]
    assert table.notes[0] == "Evaluated with other buckets: Hebb."


def test_best_is_shared_by_cells_that_read_the_same() -> None:
    assert _contest(2.00001, 2.00002, 3.0).best_cells() == {(0, 1), (1, 1)}
    assert _contest(2.0, None, math.inf).best_cells() == {(0, 1)}
    assert _contest(1.0, 2.0, best="max").best_cells() == {(1, 1)}
    for none in (_contest(2.0, None), _contest(2.0, 2.0), _contest(None, None), _contest(1.0, 2.0, best=None)):
        assert none.best_cells() == frozenset()


def test_the_best_is_sought_in_each_block_and_blocks_are_set_apart() -> None:
    rows = (
        ("one, tokens", "1,000"),
        ("a", 1.0),
        ("b", 2.0),
        ("two, tokens", "2,000"),
        ("a", 4.0),
        ("b", 3.0),
    )
    table = Table("blocks", "Blocks", (Column("x"), Column("y", "nll", "min", decimals=1)), rows, headings=(0, 3))
    assert table.best_cells() == {(1, 1), (5, 1)}
    assert to_markdown(table).splitlines()[4:] == [
        "| *one, tokens* | 1,000 |", "| a | **1.0** |", "| b | 2.0 |",
        "| *two, tokens* | 2,000 |", "| a | 4.0 |", "| b | **3.0** |",
    ]  # fmt: skip
    html = to_html(table)
    assert [part.partition("</td>")[0] for part in html.split('class="heading"><td class="text">')[1:]] == [
        "one, tokens", "two, tokens",
    ]  # fmt: skip


def test_a_ragged_table_is_a_defect() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table("t", "T", (Column("a"),), (("x", "y"),))


def test_markdown_is_bold_for_the_best_and_escaped() -> None:
    table = Table("t", "A|B", (Column("Word"), Column("Nats", "nll", "min")), (("<unk>|*", 1.0), ("b", 2.0)), ("n_1",))
    assert to_markdown(table) == (
        "## A\\|B\n\n| Word | Nats |\n| :-- | --: |\n| \\<unk\\>\\|\\* | **1.0000** |\n| b | 2.0000 |\n\nn\\_1\n"
    )


def test_infinity_reads_the_same_everywhere() -> None:
    table = _contest(1.0, math.inf)
    assert "| m1 | inf |" in to_markdown(table)
    assert "m1,inf\n" in to_csv(table)


def test_csv_reads_back_exactly() -> None:
    result = sample_result(300)
    rows = {row["Method"]: row for row in csv.DictReader(io.StringIO(to_csv(comparison_table(result))))}
    assert float(rows["Base"]["Nats"]) == result.methods["lstm"].nll
    assert rows["Base"]["Loss rose"] == ""
    frequency = list(csv.DictReader(io.StringIO(to_csv(frequency_table(result)))))
    assert frequency[0]["All"] == "300"


def test_side_by_side_fills_gaps_with_dashes() -> None:
    table = side_by_side(
        {
            "across": sample_result(200, methods=("lstm", "hebb")),
            "within": sample_result(200, source="ptb", target="ptb", methods=("lstm", "mbpa")),
        }
    )
    assert table.single_headers() == ["Method", "Nats (across)", "OOV nats (across)", "Perplexity (within)"]
    text = {row[0]: row[1:] for row in table.text()}
    assert list(text) == ["Base", "MbPA", "Hebb"]
    assert text["MbPA"][:2] == ["-", "-"]
    assert text["Hebb"][2] == "-"
