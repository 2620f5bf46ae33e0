"""A reader: it reads texts, learns from them, and answers questions about what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.reader.explain import Explanation
    from hebblm.reader.reader import Reader
    from hebblm.reader.rerank import RankedText
    from hebblm.reader.scores import Scores

__all__ = ["Explanation", "RankedText", "Reader", "Scores"]

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, "scores", "explain", "rerank", "reader")
