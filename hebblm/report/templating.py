"""The templates of reports, one environment a language: whatever a template writes is escaped for that language."""

from __future__ import annotations

import html
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hebblm.report.numbers import INFINITY, MISSING
from hebblm.report.table import Column, Written

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
_MARKDOWN_SPECIALS = str.maketrans({**{sign: f"\\{sign}" for sign in "\\`*_|<>[]"}, "\n": " "})


def latex_escape(text: str) -> str:
    """Return ``text`` so that LaTeX prints it character by character."""
    return text.translate(_LATEX_SPECIALS)


def markdown_escape(text: str) -> str:
    """Return ``text`` so that Markdown neither ends a cell nor reads markup in it."""
    return text.translate(_MARKDOWN_SPECIALS)


def latex_number(cell: Written) -> Markup:
    """Return a displayed number in LaTeX: true minus signs, powers of ten, the infinity sign; the best in bold."""
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


def source(name: str) -> str:
    """Return a file that stands beside the templates, such as a style sheet."""
    return files("hebblm.report").joinpath("templates", name).read_text("utf-8")


def _environment(escape: Callable[[str], str], **delimiters: Any) -> Environment:
    """Return the templates with an escape for every value that is not markup already."""
    return Environment(
        loader=PackageLoader("hebblm.report"),
        autoescape=True,  # macros and includes stay markup; `finalize` has escaped the rest by then
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )


HTML = _environment(html.escape)
MARKDOWN = _environment(markdown_escape)
LATEX = _environment(
    latex_escape,
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)
LATEX.filters |= {"number": latex_number, "alignment": latex_alignment}
