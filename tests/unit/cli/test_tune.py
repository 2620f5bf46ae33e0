from __future__ import annotations

import io

from rich.console import Console

from hebblm.adapt.grid import Grid
from hebblm.cli.tune import tuned_table
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.report.console import print_table
from hebblm.tuning.best import BestPoint
from hebblm.tuning.search import Search


def test_methods_are_called_by_their_labels() -> None:
    found = Search(
        Hyperparameters(), Grid(), set(), {}, {"lstm": BestPoint(loss=5.0), "mixture+hebb": BestPoint(loss=4.0)}
    )
    stream = io.StringIO()
    print_table(tuned_table(found), Console(file=stream, width=100))
    assert "Base " in stream.getvalue()
    assert "Mixture+Hebb " in stream.getvalue()
    assert "lstm" not in stream.getvalue()
