"""Reports of results for a researcher: typed JSON, tables, plots, documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.report.render.document import print_summary, write_comparison, write_report
    from hebblm.report.render.result import Result
    from hebblm.report.result.parts import FrequencyBucket, frequency_report, recombine
    from hebblm.report.result.schema import MethodResult, ScenarioRecord
    from hebblm.report.result.tokens import TokenLosses

__all__ = [
    "FrequencyBucket",
    "MethodResult",
    "Result",
    "ScenarioRecord",
    "TokenLosses",
    "frequency_report",
    "print_summary",
    "recombine",
    "write_comparison",
    "write_report",
]

if not TYPE_CHECKING:  # the type checker still reports a name that does not exist
    __getattr__ = lazily(
        __name__,
        "result.parts",
        "result.schema",
        "result.tokens",
        "render.result",
        "render.document",
    )
