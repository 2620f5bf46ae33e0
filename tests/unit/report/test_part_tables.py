from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

from hebblm.report.buckets import OCCURRENCES
from hebblm.report.gains import Gain
from hebblm.report.methods import name_of
from hebblm.report.render import to_csv
from hebblm.report.tables import (
    LONGEST,
    by_loss,
    document_table,
    gain_rows,
    gain_table,
    occurrence_table,
    occurrences_by_run,
)

from .samples import sample_result


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
        for i in range(LONGEST + 2, 0, -1)
    ]
    assert document_table(result) is None
    listed = replace(result, extra={"documents": documents})
    table = document_table(listed)
    assert table is not None
    assert [row[0] for row in table.rows] == [f"{i}.txt" for i in range(1, LONGEST + 1)]
    shown = by_loss(result)[:2]
    shown = list(dict.fromkeys([*shown, "lstm"]))
    assert [column.header for column in table.columns] == ["Document", "Tokens", *map(name_of, shown * 2)]
    assert table.rows[1][1:] == (2, *[math.exp(0.5)] * len(shown), *[0.5] * len(shown))
    assert table.notes == ("All documents stand in result.json; --by-document lists them.",)
    whole = document_table(listed, None)
    assert whole is not None
    assert len(whole.rows) == LONGEST + 2
    assert not whole.notes


def test_occurrences_stand_in_order_with_their_tokens_and_all_last() -> None:
    result = sample_result(3000)
    table = occurrence_table(result)
    assert table is not None
    assert [column.header for column in table.columns] == ["Occurrence", *OCCURRENCES, "All"]
    counts = [int(column.subheader) for column in table.columns[1:]]
    assert sum(counts[:-1]) == counts[-1] == result.scenario.oov_tokens
    hebb = result.methods["hebb"]
    row = next(row for row in table.rows if row[0] == "Hebb")
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
    assert [row[0] for row in table.rows] == [
        "a (lower, union), tokens", "Base", "Hebb", "b (lower, open), tokens", "Base", "Hebb",
    ]  # fmt: skip
    single = occurrence_table(lower)
    assert single is not None
    assert table.rows[1:3] == table.rows[4:] == single.rows
    assert [column.header for column in table.columns[1:]] == [column.header for column in single.columns[1:]]
    assert table.text()[0][1:] == [f"{column.subheader:,}" for column in single.columns[1:]]
    assert occurrences_by_run({"a": lower, "ptb": within}) is None


def test_an_infinite_loss_is_shown() -> None:
    result = sample_result(3000, methods=("lstm", "hebb"))
    item = result.methods["hebb"]
    first = replace(item.oov_occurrences[0], nll=math.inf, perplexity=math.inf)
    broken = replace(item, oov_nll=math.inf, oov_occurrences=(first, *item.oov_occurrences[1:]))
    table = occurrence_table(replace(result, methods={**result.methods, "hebb": broken}))
    assert table is not None
    assert table.text()[1][1] == table.text()[1][-1] == "inf"


def test_gains_carry_their_interval_and_a_mark_where_it_leaves_out_zero() -> None:
    result = sample_result(300, methods=("lstm", "hebb", "mbpa"))
    parts = [
        Gain("All", 300, 0.1234, 0.1, 0.15), Gain("OOV", 5, -2.0, -3.5, -0.5), Gain("Known", 295, 0.1, 0.0, 0.2),
        Gain("<50", 20, 0.05, -0.02, 0.06), Gain(">50", 280, 0.2, None, None), Gain("OOV 1st", 2, 0.5, 0.1, 0.9),
    ]  # fmt: skip
    unknown = [replace(gain, gain=None, low=None, high=None) for gain in parts[:4]]
    methods = {
        "lstm": replace(result.methods["lstm"], gains=()),
        "mbpa": replace(result.methods["mbpa"], gains=tuple(parts)),
        "hebb": replace(result.methods["hebb"], gains=tuple(unknown)),
    }
    table = gain_table(replace(result, methods=methods))
    assert table is not None
    assert [column.header for column in table.columns] == ["Training count", "All", "OOV", "<50", ">50"]
    assert [column.subheader for column in table.columns[1:]] == [300, 5, 20, 280]
    assert table.text() == [
        ["MbPA", "+0.123 ±.025*", "-2.000 ±1.500*", "+0.050 ±.040", "+0.200"],
        ["Hebb", "-", "-", "-", "-"],
    ]
    assert "95 % interval" in table.notes[0]
    assert "1,000 resamples of blocks of 200 tokens" in table.notes[0]
    rows = list(csv.DictReader(io.StringIO(to_csv(gain_rows(replace(result, methods=methods))))))
    assert [row["Part"] for row in rows[:6]] == [gain.part for gain in parts]
    assert float(rows[1]["Low"]) == -3.5
    assert rows[-1]["Gain"] == rows[4]["High"] == ""
    assert gain_table(sample_result(200, methods=("hebb", "mbpa"))) is None, "without the unadapted model"
