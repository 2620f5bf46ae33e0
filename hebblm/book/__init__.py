"""The results book: every run under a folder of results, beside the paper, as Markdown, LaTeX and one HTML page."""

from __future__ import annotations

from hebblm.book.contents import contents
from hebblm.book.sources import Sources, load_sources
from hebblm.book.writing import write_book

__all__ = ["Sources", "contents", "load_sources", "write_book"]
