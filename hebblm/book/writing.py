"""The book on disk: Markdown, LaTeX, and one HTML page with its plots inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from hebblm.book.section import Section
from hebblm.files import atomic_path, write_text
from hebblm.report import plots
from hebblm.report.html import Markup, element, table_html
from hebblm.report.render import latex_escape, markdown_escape, to_latex, to_markdown

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2228; --paper: #fff; --dim: #5d6670; --line: #d8dde2 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #16191d; --dim: #9aa4ae; --line: #343b43 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 66rem;
  margin: 2rem auto; padding: 0 1.2rem }
h1 { font-size: 1.7rem } h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; border-bottom: 1px solid var(--line) }
h3 { font-size: 1.12rem; margin: 2.2rem 0 .4rem } h4 { font-size: .98rem; margin: 1.6rem 0 .4rem }
a { color: inherit } nav ul { columns: 2; padding-left: 1.1rem; font-size: .9rem } nav .inner { margin-left: 1.2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem }
th, td { padding: .24rem .8rem .24rem 0; text-align: right; vertical-align: top }
thead th { border-bottom: 1.5px solid var(--dim); font-weight: 600 } tbody tr { border-bottom: 1px solid var(--line) }
th small { display: block; font-weight: 400; color: var(--dim) } .text { text-align: left; overflow-wrap: anywhere }
td.best { font-weight: 700 } .note { color: var(--dim); font-size: .87rem; margin: .3rem 0; overflow-wrap: anywhere }
figure { margin: 1.4rem 0 } img { max-width: 100%; height: auto; background: #fff; border-radius: .3rem }
@media print { h3 { break-before: page } table, figure { break-inside: avoid } }
"""
_PREAMBLE = r"""\documentclass[10pt,a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[margin=18mm,landscape]{geometry}
\usepackage{booktabs,graphicx,float,adjustbox}
\floatplacement{table}{H}
\floatplacement{figure}{H}
\sloppy
"""

_FITTED = r"\begin{adjustbox}{max width=\linewidth,max totalheight=0.8\textheight}"


def write_book(title: str, sections: Sequence[Section], directory: Path) -> list[Path]:
    """Write ``book.md``, ``book.tex``, ``book.html`` and ``figures/*.png``, each file atomically.

    The same sections give the same bytes.

    Args:
        title: of the book.
        sections: in their order.
        directory: made if absent.

    Returns:
        The files written.

    Raises:
        UserError: a place that cannot be written to.
    """
    drawn = {
        picture.name: plots.render(picture.figure, "png")
        for section in sections
        for picture in section.pictures
    }
    written = []
    for name, data in drawn.items():
        path = directory / "figures" / f"{name}.png"
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
        written.append(path)
    for name, text in (
        ("book.md", markdown(title, sections)),
        ("book.tex", latex(title, sections)),
        ("book.html", page(title, sections, drawn)),
    ):
        write_text(directory / name, text)
        written.append(directory / name)
    return written


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the book as Markdown; its pictures lie in ``figures/``."""
    parts = [f"# {markdown_escape(title)}\n"]
    for section in sections:
        parts.append(f"{'#' * (section.level + 1)} {markdown_escape(section.title)}\n")
        parts += [f"{markdown_escape(line)}\n" for line in section.lines]
        parts += [to_markdown(table, level=4) for table in section.tables]
        parts += [
            f"![{markdown_escape(picture.caption)}](figures/{picture.name}.png)\n"
            for picture in section.pictures
        ]
    return "\n".join(parts)


def latex(title: str, sections: Sequence[Section]) -> str:
    """Return the book as a LaTeX document; its pictures lie in ``figures/``."""
    parts = [_PREAMBLE, rf"\title{{{latex_escape(title)}}}", r"\date{}", r"\begin{document}", r"\maketitle"]
    parts.append(r"\tableofcontents")
    for section in sections:
        heading = "section" if section.level == 1 else "subsection"
        parts.append(rf"\{heading}{{{latex_escape(section.title)}}}")
        parts += [rf"{latex_escape(line)}\par" for line in section.lines]
        for table in section.tables:
            # What is larger than the page shrinks to it.
            parts.append(
                to_latex(table)
                .replace(r"\begin{tabular}", _FITTED + r"\begin{tabular}")
                .replace(r"\end{tabular}", r"\end{tabular}\end{adjustbox}")
            )
        for picture in section.pictures:
            parts += [
                r"\begin{figure}\centering",
                rf"\includegraphics[width=0.8\linewidth]{{figures/{picture.name}.png}}",
                rf"\caption{{{latex_escape(picture.caption)}}}",
                r"\end{figure}",
            ]
    return "\n".join([*parts, r"\end{document}", ""])


def page(title: str, sections: Sequence[Section], drawn: Mapping[str, bytes]) -> str:
    """Return the book as one HTML file that needs nothing beside it.

    Args:
        title: of the book.
        sections: in their order.
        drawn: PNG bytes of their pictures, by name.
    """
    entries = [
        element(
            "li", element("a", section.title, href=f"#s{at}"), class_="inner" if section.level > 1 else ""
        )
        for at, section in enumerate(sections)
    ]
    body = [element("h1", title), element("nav", element("ul", *entries), aria_label="Contents")]
    for at, section in enumerate(sections):
        body.append(element(f"h{section.level + 1}", section.title, id=f"s{at}"))
        body += [element("p", line, class_="note") for line in section.lines]
        body += [table_html(table, level=4) for table in section.tables]
        body += [_figure(picture.caption, drawn[picture.name]) for picture in section.pictures]
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(_STYLE)),
    )
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', head, "<body>", *body, "</body>", "</html>", ""])


def _figure(caption: str, data: bytes) -> Markup:
    """Return a picture with its caption, embedded."""
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    image = Markup(element("img", src=source, alt=caption, loading="lazy").removesuffix("</img>"))
    return element("figure", image, element("figcaption", caption, class_="note"))
