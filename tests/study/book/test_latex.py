from __future__ import annotations

import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.report.tables.table import Column, Table
from recipes.study.book.latex import latex_escape, to_latex


def test_headings_are_set_apart() -> None:
    rows = (("one, tokens", "1,000"), ("a", 1.0), ("two, tokens", "2,000"), ("b", 3.0))
    table = Table.of_cells(
        "blocks",
        "Blocks",
        (Column("x"), Column("y", "nll", "min", decimals=1)),
        rows,
        headings=(0, 2),
    )
    body = to_latex(table).partition(r"\midrule")[2].splitlines()
    assert body.index(r"\midrule") == body.index(r"two, tokens & 2,000 \\") - 1
    assert body.count(r"\midrule") == 1


def test_infinity_and_intervals() -> None:
    table = Table.of_cells(
        "t",
        "T",
        (Column("M"), Column("P", "perplexity")),
        (("m1", math.inf), ("m2", "-2.000 ±1.500*")),
    )
    assert r"m1 & $\infty$ \\" in to_latex(table)
    assert "$-$2.000 ±1.500*" in to_latex(table)


def test_no_text_of_a_table_is_markup_or_a_template() -> None:
    evil = '{{ 7 * 7 }}{% x %}</script>"'
    text = to_latex(Table.of_cells("t", evil, (Column(evil, subheader=evil),), ((evil,),), (evil,)))
    assert text.count(r'\{\{ 7 * 7 \}\}\{\% x \%\}\textless{}/script\textgreater{}"') == 5
    assert evil not in text


def test_latex_numbers() -> None:
    columns = (Column("M"), Column("P", "perplexity", "min"), Column("G", "signed", "max"))
    table = Table.of_cells("t", "T & U", columns, (("a_b", 1.5e6, -0.25), ("c", 2.5e7, None)))
    text = to_latex(table)
    assert r"a\_b & \textbf{\boldmath $1.50 \times 10^{6}$} & $-$0.2500 \\" in text
    assert r"c & $2.50 \times 10^{7}$ & -- \\" in text
    assert r"\caption{T \& U.}" in text
    assert r"\label{table:t-u}" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1


@settings(deadline=None, max_examples=30)
@given(st.text())
def test_latex_escaping_leaves_no_active_character(text: str) -> None:
    escaped = latex_escape(text)
    bare = re.sub(
        r"\\(textbackslash|textasciicircum|textasciitilde|textless|textgreater)\{\}|\\[{}$&#_%]",
        "",
        escaped,
    )
    assert not set(bare) & set("\\{}$&#^_~%<>")
