"""LaTeX as pdflatex sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from recipes.study.book import contents, load_sources
from recipes.study.book.contents import TITLE
from recipes.study.book.latex import to_latex
from recipes.study.book.writing import write_book
from recipes.study.paper import paper_tables

from ...unit.report.samples import sample_result
from .samples import write_results

PACKAGES = ("booktabs", "float", "geometry", "graphicx")


@pytest.fixture(scope="module")
def pdflatex() -> str:
    """Return the command; skip where it is missing, or a package is."""
    command = shutil.which("pdflatex")
    if command is None:
        pytest.skip("no pdflatex on the path")
    files = [f"{name}.sty" for name in PACKAGES]
    found = subprocess.run(
        ["kpsewhich", *files], capture_output=True, text=True, check=False
    ).stdout
    if missing := [name for name in files if name not in found]:
        pytest.skip(f"pdflatex has no {', '.join(missing)}")
    return command


def typeset(command: str, path: Path) -> str:
    """Return what pdflatex says of a document, which it has to make into pages."""
    call = [command, "-interaction=nonstopmode", "-halt-on-error", path.name]
    done = subprocess.run(call, cwd=path.parent, capture_output=True, check=False)
    said = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said
    assert path.with_suffix(".pdf").stat().st_size > 0
    assert "Missing character" not in path.with_suffix(".log").read_text("utf-8", "replace")
    return said


def test_the_book_fits_its_pages(pdflatex: str, tmp_path: Path) -> None:
    results = write_results(tmp_path / "results")
    sample_result(3000).save(results / "sample")
    write_book(TITLE, contents(load_sources(results)), tmp_path / "book")
    said = typeset(pdflatex, tmp_path / "book" / "book.tex")
    assert "Overfull" not in said, said


def test_tables_go_into_a_document(pdflatex: str, tmp_path: Path) -> None:
    (tmp_path / "tables.tex").write_text(
        "\n".join(map(to_latex, paper_tables(sample_result(3000))))
    )
    document = tmp_path / "paper.tex"
    document.write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\input{tables.tex}\\end{document}\n"
    )
    typeset(pdflatex, document)
