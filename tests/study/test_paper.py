from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recipes.study.paper import paper_tables, published

from ..unit.report.samples import sample_result


def test_paper_numbers_stand_beside_ours() -> None:
    result = sample_result(300, source="wt2", target="wt2")
    main, frequency = paper_tables(result)
    rows = {row[0]: row for row in main.cells()}
    assert rows["Mixture+Hebb"][1] == 49.66
    assert rows["Mixture+Hebb"][2] == result.methods["mixture+hebb"].perplexity
    assert rows["Mixture+Hebb"][3] == pytest.approx(math.log(65.44 / 49.66))
    assert rows["Mixture+Hebb"][4] == pytest.approx(
        result.methods["lstm"].nll - result.methods["mixture+hebb"].nll
    )
    assert rows["Base"][3] is None
    assert rows["kNN-LM"][1] is None
    assert [row[:3] for row in frequency.cells()][2] == ("Hebb", "paper", 4676.85)
    assert [row[1] for row in frequency.cells()] == ["paper", "here", "paper", "here"]


def test_paper_across_domains_in_nats() -> None:
    (table,) = paper_tables(sample_result(300))
    hebb = next(row for row in table.cells() if row[0] == "Hebb")
    assert hebb[1] == 5.99
    assert hebb[3] == pytest.approx(6.41 - 5.99)
    assert hebb[5] == 10.36
    assert any("300 of 82,430 tokens" in note for note in table.notes)
    assert any("3.77 %" in note for note in table.notes)


def test_scenarios_that_the_paper_lacks_have_no_paper_table() -> None:
    assert paper_tables(sample_result(100, source="pydoc", target="numpy")) == []
    assert paper_tables(sample_result(100, source="wt2", target="ptb", split="valid")) == []
    (only,) = paper_tables(sample_result(100, source="ptb", target="ptb", split="valid"))
    assert only.name == "paper"


def test_the_papers_two_totals_for_hebb_are_both_kept_and_noted() -> None:
    printed = published(sample_result(100, source="wt2", target="wt2").scenario)
    assert printed is not None
    assert printed.perplexity["hebb"] != printed.frequency["hebb"]["All"]
    assert any("57.29" in note and "58.29" in note for note in printed.notes)


def test_two_infinite_losses_have_no_difference() -> None:
    result = sample_result(200, source="ptb", target="ptb", methods=("lstm", "mbpa", "hebb"))
    infinite = {
        name: replace(item, nll=math.inf, perplexity=math.inf) if name != "mbpa" else item
        for name, item in result.methods.items()
    }
    gains = {row[0]: row[4] for row in paper_tables(replace(result, methods=infinite))[0].cells()}
    assert gains["Hebb"] is None
    assert gains["MbPA"] == math.inf
