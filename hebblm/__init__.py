"""hebblm: adapt a trained language model to new words and new domains while it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily
from hebblm.threads import wait_briefly

if TYPE_CHECKING:
    from hebblm.adapt.methods import METHODS, Method
    from hebblm.expected import Suggestion
    from hebblm.front import evaluate, tune
    from hebblm.language_model import LanguageModel, load
    from hebblm.reader import Reader
    from hebblm.report.result import Result
    from hebblm.scores import Scores
    from hebblm.types import Memory, Neighbors, OutputHead

wait_briefly()  # every command passes here, and nothing before it loads torch

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "LanguageModel",
    "Memory",
    "Method",
    "Neighbors",
    "OutputHead",
    "Reader",
    "Result",
    "Scores",
    "Suggestion",
    "__version__",
    "evaluate",
    "load",
    "tune",
]

if not TYPE_CHECKING:  # a name that is none stays an error for the type checker
    __getattr__ = lazily(
        __name__,
        "adapt.methods",
        "types",
        "scores",
        "expected",
        "reader",
        "language_model",
        "report.result",
        "front",
    )
