"""A result that shows itself: verdict, table, notebook, data frame."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hebblm.errors import UserError
from hebblm.report.render import verdict
from hebblm.report.render.table import to_html, to_text
from hebblm.report.result.schema import StoredResult
from hebblm.report.tables.overall import by_loss, gain_of, summary_table
from hebblm.runtime.extras import install

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Result(StoredResult):
    """Result of an evaluation: scenario, model, memory, provenance, a :class:`MethodResult` per
    method, its time.
    """

    def __repr__(self) -> str:
        return f"Result of {self.scenario.label}, {self.scored}\n{self.verdict()}"

    def verdict(self) -> str:
        """Return which method is best, by how much and at what cost, or why that is undecided."""
        return verdict.verdict(self)

    def table(self) -> str:
        """Return the methods, best first, as plain text that is Markdown too."""
        return to_text(summary_table(self))

    def _repr_html_(self) -> str:
        """Verdict and table for a notebook."""
        return f"<p>{escape(self.verdict())}</p>{to_html(summary_table(self), level=4)}"

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
                f"to_pandas() needs pandas, which is not installed: {install('pandas')}"
            ) from error
        rows: dict[str, dict[str, float | None]] = {}
        for name in by_loss(self):
            item = self.methods[name]
            rows[name] = {
                "nll": item.nll,
                "perplexity": item.perplexity,
                "gain": None,
                "gain_low": None,
                "gain_high": None,
                "oov_nll": item.oov_nll,
                "in_vocabulary_nll": item.in_vocabulary_nll,
                "tokens_per_second": item.tokens_per_second,
            }
            gain = gain_of(self, name)
            if gain is not None:
                rows[name] |= {"gain": gain.gain, "gain_low": gain.low, "gain_high": gain.high}
        frame = pd.DataFrame.from_dict(rows, orient="index", dtype=float)
        return frame.rename_axis("method")
