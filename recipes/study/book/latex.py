"""Tables in LaTeX."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import FileSystemLoader
from markupsafe import Markup

from hebblm.report.render.table import ShownCell, environment
from hebblm.report.result.numbers import INFINITY, MISSING
from hebblm.report.tables.table import Column, Table

_WIDE = 0.5  # of the line, for a column of sentences
_LATEX_SPECIALS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "^": r"\textasciicircum{}",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "%": r"\%",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


def latex_escape(text: str) -> str:
    """Return ``text`` so that LaTeX prints it character by character."""
    return text.translate(_LATEX_SPECIALS)


def latex_number(cell: ShownCell) -> Markup:
    """Return a displayed number in LaTeX: true minus signs, powers of ten, the infinity sign; the
    best in bold.
    """
    text = cell.text
    mantissa, exponent_mark, exponent = text.partition("e")
    if text == MISSING:
        return Markup("--")
    if INFINITY in text:
        body = "$" + text.replace(INFINITY, r"\infty") + "$"
    elif exponent_mark:
        body = rf"${mantissa} \times 10^{{{int(exponent)}}}$"
    else:
        body = text.replace("-", "$-$")
    if cell.best:
        body = rf"\textbf{{\boldmath {body}}}" if "$" in body else rf"\textbf{{{body}}}"
    return Markup(body)


def latex_alignment(column: Column) -> Markup:
    """Return how LaTeX sets a column."""
    if column.wide:
        return Markup(rf"p{{{_WIDE}\linewidth}}")
    return Markup("l" if column.kind == "text" else "r")


def slug(title: str) -> str:
    """Return a title as a label: lower case, words joined by hyphens."""
    return "-".join(re.sub(r"[\W_]", " ", title.lower()).split())


LATEX = environment(
    latex_escape,
    FileSystemLoader(Path(__file__).parent),
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)
LATEX.filters |= {"number": latex_number, "alignment": latex_alignment, "slug": slug}


def to_latex(table: Table) -> str:
    """Return a LaTeX ``table`` environment for the booktabs package, every text escaped."""
    return LATEX.get_template("table.tex.j2").render(table=table)
