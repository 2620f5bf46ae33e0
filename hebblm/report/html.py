"""Self-contained HTML: every text is escaped on its way in, every picture is embedded."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape

from hebblm.report.table import Table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto;
  padding: 0 1.2rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .28rem .8rem .28rem 0; text-align: right; vertical-align: top }
thead th { border-bottom: 1.5px solid #444; font-weight: 600 } tbody tr { border-bottom: 1px solid #eee }
th small { display: block; font-weight: 400; color: #777 }
.text { text-align: left; overflow-wrap: anywhere; min-width: 3.5rem } .text:first-child { overflow-wrap: break-word }
td.best { font-weight: 700 } .heading td { padding-top: 1rem; font-weight: 600 }
p.note { color: #666; font-size: .87rem; margin: .3rem 0 }
img { max-width: 100%; height: auto; margin-top: 1.6rem }
"""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """Return ``<tag attributes>children</tag>``; what is not markup is escaped.

    A trailing underscore of an attribute's name is dropped, so that ``class_`` can be given; others become hyphens.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value
    )
    inner = "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    return Markup(f"<{tag}{given}>{inner}</{tag}>")


def table_html(table: Table, *, level: int = 2) -> Markup:
    """Return a table under its heading of ``level``, the best cells marked, its notes below."""
    best = table.best_cells()
    kinds = ["text" if column.kind == "text" else "" for column in table.columns]
    second = table.header_row or [""] * len(kinds)
    header = [
        element("th", column.header, *([element("small", small)] if small else []), class_=kind)
        for column, small, kind in zip(table.columns, second, kinds, strict=True)
    ]
    rows = [
        element(
            "tr",
            *(
                element(
                    "td", cell, class_=" ".join(filter(None, (kind, "best" if (at, index) in best else "")))
                )
                for index, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ),
            class_="heading" if at in table.headings else "",
        )
        for at, row in enumerate(table.text())
    ]
    grid = element("table", element("thead", element("tr", *header)), element("tbody", *rows))
    notes = [element("p", note, class_="note") for note in table.notes]
    return Markup(
        "\n".join([element(f"h{level}", table.title), element("div", grid, class_="scroll"), *notes])
    )


def page(
    title: str,
    lines: Iterable[str],
    tables: Iterable[Table],
    pictures: Mapping[str, bytes],
    facts: Iterable[Table],
    lead: str = "",
) -> str:
    """Return one HTML file that needs nothing beside it.

    Args:
        title: of the page.
        lines: paragraphs below it.
        tables: the findings.
        pictures: PNG bytes by their description.
        facts: tables that follow the pictures.
        lead: a paragraph that stands before all others.
    """
    images = [
        f'<img alt="{escape(name)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        for name, data in pictures.items()
    ]
    body = [
        element("h1", title),
        *([element("p", lead)] if lead else []),
        *(element("p", line, class_="note") for line in lines),
        *map(table_html, tables),
        *images,
        *map(table_html, facts),
    ]
    head = (
        f'<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
    )
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', head, "<body>", *body, "</body>", "</html>", ""])
