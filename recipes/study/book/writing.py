"""The book on disk: Markdown, LaTeX, and one HTML page with its plots inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hebblm.io.files import write_bytes, write_text
from hebblm.report.plots import drawing
from hebblm.report.render.table import HTML, markdown_escape, to_markdown
from recipes.study.book.latex import latex_escape, to_latex
from recipes.study.book.section import Section

_PAGE = Path(__file__).with_name("book.html.j2")
_PREAMBLE = r"""% For pdflatex. It needs TeX Live's collections latex and latexrecommended.
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
# in a command: names without a space, between which a line may end
_LISTED = re.compile(r",(?=[a-z])")
_BREAK = r",\\allowbreak{}"
_MARKDOWN, _FIGURES = "book.md", "figures"


def write_book(title: str, sections: Sequence[Section], directory: Path) -> list[Path]:
    """Write ``book.md``, ``book.tex``, ``book.html`` and ``figures/*.png``, each file atomically.

    The same sections give the same bytes. Pictures that an earlier book in the folder shows and
    this one does not are removed; whatever else lies there stays.
    """
    drawn = {
        picture.name: drawing.render(picture.figure, "png")
        for section in sections
        for picture in section.pictures
    }
    written = []
    for name, data in drawn.items():
        written.append(write_bytes(directory / _FIGURES / f"{name}.png", data))
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
    """Return the book as one HTML file that needs no other file."""
    template = HTML.from_string(_PAGE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        sections=sections,
        drawn=drawn,
        encode=lambda data: base64.b64encode(data).decode(),
    )
