"""The book on disk: Markdown, LaTeX, and one HTML page with its plots inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hebblm.files import atomic_path, write_text
from hebblm.report import plots
from hebblm.report.html import Markup, element, table_html
from hebblm.report.render import latex_escape, markdown_escape, to_latex, to_markdown
from recipes.study.book.section import Section

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
th small { display: block; font-weight: 400; color: var(--dim) }
.text { text-align: left; overflow-wrap: anywhere; min-width: 3.5rem } .text:first-child { overflow-wrap: break-word }
td.best { font-weight: 700 } .heading td { padding-top: 1rem; font-weight: 600 }
.note { color: var(--dim); font-size: .87rem; margin: .3rem 0; overflow-wrap: anywhere }
figure { margin: 1.4rem 0 } img { max-width: 100%; height: auto; background: #fff; border-radius: .3rem }
@media print { h3 { break-before: page } table, figure { break-inside: avoid } }
"""
_PREAMBLE = r"""% For pdflatex. What it needs is in TeX Live's collections latex and latexrecommended.
\documentclass[10pt,a4paper]{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[margin=18mm,landscape]{geometry}
\usepackage{booktabs,graphicx,float}
\floatplacement{table}{H}
\floatplacement{figure}{H}
\sloppy
% What is larger than the page shrinks to it.
\newsavebox{\fitted}
\newcommand{\fit}{%
\ifdim\wd\fitted>\linewidth\sbox{\fitted}{\resizebox{\linewidth}{!}{\usebox{\fitted}}}\fi
\ifdim\dimexpr\ht\fitted+\dp\fitted\relax>0.8\textheight
\sbox{\fitted}{\resizebox*{!}{0.8\textheight}{\usebox{\fitted}}}\fi
\usebox{\fitted}}
"""
_WITHIN = r"width=0.8\linewidth,height=0.8\textheight,keepaspectratio"
_LISTED = re.compile(r",(?=[a-z])")  # in a command: names without a space, between which a line may end
_BREAK = r",\\allowbreak{}"
_MARKDOWN, _FIGURES = "book.md", "figures"


def write_book(title: str, sections: Sequence[Section], directory: Path) -> list[Path]:
    """Write ``book.md``, ``book.tex``, ``book.html`` and ``figures/*.png``, each file atomically.

    The same sections give the same bytes. Pictures that an earlier book in the folder shows and this one does not are
    removed; whatever else lies there stays.

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
        path = directory / _FIGURES / f"{name}.png"
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
        written.append(path)
    for former in _shown_by(directory / _MARKDOWN) - drawn.keys():
        (directory / _FIGURES / f"{former}.png").unlink(missing_ok=True)
    for name, text in (
        ("book.tex", latex(title, sections)),
        ("book.html", page(title, sections, drawn)),
        (_MARKDOWN, markdown(title, sections)),  # last: it says which pictures are the book's
    ):
        write_text(directory / name, text)
        written.append(directory / name)
    return written


def _shown_by(book: Path) -> set[str]:
    """Return the names of the pictures of a book in Markdown; none where there is no book."""
    text = book.read_text(encoding="utf-8", errors="replace") if book.is_file() else ""
    return set(re.findall(rf"^!\[.*\]\({_FIGURES}/([^/]+)\.png\)$", text, re.MULTILINE))


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the book as Markdown; its pictures lie in ``figures/``."""
    parts = [f"# {markdown_escape(title)}\n"]
    for section in sections:
        parts.append(f"{'#' * (section.level + 1)} {markdown_escape(section.title)}\n")
        parts += [f"{markdown_escape(line)}\n" for line in section.lines]
        parts += [to_markdown(table, level=4) for table in section.tables]
        parts += [
            f"![{markdown_escape(picture.caption)}]({_FIGURES}/{picture.name}.png)\n"
            for picture in section.pictures
        ]
    return "\n".join(parts)


def latex(title: str, sections: Sequence[Section]) -> str:
    """Return the book as a LaTeX document; its pictures lie in ``figures/``."""
    parts = [_PREAMBLE, rf"\title{{{latex_escape(title)}}}", r"\author{}", r"\date{}"]
    parts += [r"\begin{document}", r"\maketitle", r"\tableofcontents"]
    for section in sections:
        heading = "section" if section.level == 1 else "subsection"
        parts.append(rf"\{heading}{{{latex_escape(section.title)}}}")
        parts += [rf"{_LISTED.sub(_BREAK, latex_escape(line))}\par" for line in section.lines]
        for table in section.tables:
            parts.append(
                to_latex(table)
                .replace(r"\begin{tabular}", r"\begin{lrbox}{\fitted}\begin{tabular}")
                .replace(r"\end{tabular}", r"\end{tabular}\end{lrbox}\fit{}")
            )
        for picture in section.pictures:
            parts += [
                r"\begin{figure}\centering",
                rf"\includegraphics[{_WITHIN}]{{{_FIGURES}/{picture.name}.png}}",
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
