"""Results of evaluations: reading, showing and saving them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hebblm.errors import UserError
from hebblm.report import summary
from hebblm.report.buckets import FrequencyBucket
from hebblm.report.render import to_html, to_text
from hebblm.report.stored import (
    FILE_NAME,
    SCHEMA,
    Forgetting,
    MethodResult,
    ScenarioRecord,
    StoredResult,
    corpus_name,
    scenario_label,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FILE_NAME",
    "SCHEMA",
    "Forgetting",
    "FrequencyBucket",
    "MethodResult",
    "Result",
    "ScenarioRecord",
    "corpus_name",
    "scenario_label",
]


@dataclass(frozen=True, slots=True)
class Result(StoredResult):
    """Result of an evaluation: scenario, model, memory, provenance, a :class:`MethodResult` per
    method, its time.
    """

    def __repr__(self) -> str:
        return f"Result of {self.scenario.label}, {self.scored}\n{self.verdict()}"

    def verdict(self) -> str:
        """Return which method is best, by how much and at what cost, or why that is undecided."""
        return summary.verdict(self)

    def table(self) -> str:
        """Return the methods, best first, as plain text that is Markdown too."""
        return to_text(summary.summary_table(self))

    def _repr_html_(self) -> str:
        """Verdict and table for a notebook."""
        return f"<p>{escape(self.verdict())}</p>{to_html(summary.summary_table(self), level=4)}"

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row per method, the lowest loss first.

        Losses and the gain over the base, with both ends of its interval, are in nats per token;
        unknown values are missing.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UserError(
                "to_pandas() needs pandas, which is not installed: pip install -e '.[pandas]' in "
                "the checkout"
            ) from error
        frame = pd.DataFrame.from_dict(summary.rows(self), orient="index", dtype=float)
        return frame.rename_axis("method")
