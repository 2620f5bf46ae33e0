"""The results book: every run under a folder of results, next to the paper, as Markdown, LaTeX and
one HTML page.
"""

from __future__ import annotations

from recipes.study.book.contents import contents
from recipes.study.book.sources import Sources, load_sources
from recipes.study.book.writing import write_book

__all__ = ["Sources", "contents", "load_sources", "write_book"]
