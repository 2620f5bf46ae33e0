"""hebblm: adapt a trained language model to new words and new domains while it reads."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.adapt.methods import METHODS, Method, register
    from hebblm.api.language_model import LanguageModel, load
    from hebblm.api.runs import evaluate, tune
    from hebblm.online.expected import Suggestion
    from hebblm.reader.explain import Explanation
    from hebblm.reader.reader import Reader
    from hebblm.reader.rerank import RankedText
    from hebblm.reader.scores import Scores
    from hebblm.report.render.result import Result
    from hebblm.types import Adapter, Memory, Neighbors, OutputHead


def _wait_briefly() -> None:
    """Make a waiting thread give its processor away soon, unless the user chose how threads wait.

    torch and FAISS bring libgomp along, an OpenMP runtime. By default its idle threads look for
    work 300,000 times before they sleep. If another process needs the processor, those turns can
    block the very thread that the others wait for. On a quiet machine a thousand turns bridge the
    gaps between two products just as well (``recipes/results/bench/busy.json``). To sleep at once,
    as a passive policy does, takes longer there.

    The runtime reads the environment when it is loaded, so this must come before torch. If the
    caller has imported torch already, this does nothing. The AWD-LSTM port stands alone and leaves
    the choice to whoever imports it.
    """
    chosen = {
        "OMP_WAIT_POLICY",
        "GOMP_SPINCOUNT",
        "KMP_BLOCKTIME",
        "KMP_LIBRARY",
    } & os.environ.keys()
    if "torch" not in sys.modules and not chosen:
        # for every runtime; to libgomp the next line goes first
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ["GOMP_SPINCOUNT"] = "1000"


_wait_briefly()  # every command passes here, and nothing before it loads torch

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "Adapter",
    "Explanation",
    "LanguageModel",
    "Memory",
    "Method",
    "Neighbors",
    "OutputHead",
    "RankedText",
    "Reader",
    "Result",
    "Scores",
    "Suggestion",
    "__version__",
    "evaluate",
    "load",
    "register",
    "tune",
]

if not TYPE_CHECKING:  # the type checker still reports a name that does not exist
    __getattr__ = lazily(
        __name__,
        "adapt.methods",
        "types",
        "online.expected",
        "report.render.result",
        "reader",
        "api",
    )
