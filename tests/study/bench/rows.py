"""Rows as a measurement writes them, with costs that are easy to check."""

from __future__ import annotations

from typing import Any

from recipes.bench.record import BenchResult, Row
from recipes.bench.timing import Timing

SYNTHETIC = {"kind": "synthetic", "states": "made up", "seed": 1}
MODEL = {"kind": "model", "states": "small-ptb-raw on ptb"}
PAPER = {"dim": 400, "k": 200, "batch": 100}


def timing(ms: float, tokens: int = 100) -> Timing:
    """Return five rounds whose median is ``ms`` a token."""
    return Timing(
        tuple(ms * tokens / 1000 * scale for scale in (1.1, 1.0, 0.9, 1.0, 1.2)), (tokens,) * 5
    )


def adapt_row(
    classes: int,
    steps: int,
    *,
    naive: float,
    fast: float,
    source: Any = SYNTHETIC,
    case: dict[str, int] | None = None,
    **values: float,
) -> Row:
    """Return a row of ``adapt`` with Hebb half a per cent above MbPA."""
    found = {
        "hebb_over_mbpa": 0.005,
        "hebb_over_mbpa_min": -0.001,
        "hebb_over_mbpa_max": 0.02,
        "error_mean": 5e-5,
        "error_max": 4e-4,
        "kl": 1e-7,
        "perplexity_bias_percent": -0.004,
        **values,
    }
    costs = {
        "naive_mbpa": naive,
        "fast_mbpa": fast,
        "naive_hebb": naive,
        "fast_hebb": 1.005 * fast,
        "exact_mbpa": naive / 3,
        "hebbian": 0.005 * fast,
        "addition": 0.00125 * fast,
    }
    return Row(
        "adapt",
        {"vocabulary": classes, **PAPER, "steps": steps, "source": source, **(case or {})},
        {name: timing(cost) for name, cost in costs.items()},
        dict.fromkeys(("fast_mbpa", "fast_hebb", "exact_mbpa"), "naive_mbpa"),
        found,
    )


def retrieve_row(
    entries: int,
    *,
    exact: float,
    index: float,
    recall: float = 0.995,
    source: dict[str, object] = SYNTHETIC,
    **case: object,
) -> Row:
    return Row(
        "retrieve",
        {"entries": entries, **PAPER, "source": source, **case},
        {"exact": timing(exact), "index": timing(index)},
        {"index": "exact"},
        {"recall": recall, "build_seconds": 1.0},
    )


def evaluation_row(
    entries: int, *, times: float, peak: float = 2.0**30, classes: int = 10_000
) -> Row:
    case = {
        "architecture": {"hidden_dim": 1150},
        "entries": entries,
        "vocabulary": classes,
        "source": SYNTHETIC,
    }
    values = {
        "times_lstm": times,
        "times_lstm_min": times,
        "times_lstm_max": times,
        "peak_bytes": peak,
    }
    return Row("evaluation", case, {"lstm": timing(1.0), "all": timing(times)}, {}, values)


def result(*rows: Row, kind: str = "adapt", complete: bool = True) -> BenchResult:
    """Return a result that holds ``rows``."""
    provenance = {
        "command": f"python -m recipes.bench {kind}",
        "commit": "0123456789abcdef",
        "versions": {"torch": "2.13.0"},
        "device": "cpu",
        "cpu": "a processor",
        "threads": 2,
        "seed": 1,
    }
    return BenchResult(kind, provenance, {"repeats": 5}, rows, complete)
