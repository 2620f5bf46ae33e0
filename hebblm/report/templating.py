"""The templates of reports, one environment a language: whatever a template writes is escaped for that language."""

from __future__ import annotations

import html
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_MARKDOWN_SPECIALS = str.maketrans({**{sign: f"\\{sign}" for sign in "\\`*_|<>[]"}, "\n": " "})


def markdown_escape(text: str) -> str:
    """Return ``text`` so that Markdown neither ends a cell nor reads markup in it."""
    return text.translate(_MARKDOWN_SPECIALS)


def source(name: str) -> str:
    """Return a file that stands beside the templates, such as a style sheet."""
    return files("hebblm.report").joinpath("templates", name).read_text("utf-8")


def environment(escape: Callable[[str], str], loader: BaseLoader | None = None, **delimiters: Any) -> Environment:
    """Return the templates of a loader, by default this package's; every value that is no markup is escaped."""
    return Environment(
        loader=loader or PackageLoader("hebblm.report"),
        autoescape=True,  # macros and includes stay markup; `finalize` has escaped the rest by then
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )


HTML = environment(html.escape)
MARKDOWN = environment(markdown_escape)
