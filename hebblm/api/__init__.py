"""The front door: open a language model, evaluate methods, tune them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.api.language_model import LanguageModel, load
    from hebblm.api.runs import evaluate, tune

__all__ = ["LanguageModel", "evaluate", "load", "tune"]

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, "language_model", "runs")
