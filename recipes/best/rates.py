"""Collects what ``best`` reaches over a moving base at other rates, from the results of ``rates.sh``.

python -m recipes.best.rates results recipes/best/rates.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hebblm.files import write_json
from hebblm.report.result import Result

RUNS = {
    "valid-0.0002": "best-ptb-valid-0.0002",
    "valid-0.0004": "best-ptb-valid-0.0004",
    "valid-0.0008": "best-ptb-valid-0.0008",
    "test-0.0004": "best-ptb-lr",
    "across-tuned-50": "best-across-50",
    "across-tuned-10": "best-across-10",
    "across-tuned-5": "best-across-5",
}


def told(result: Result) -> dict[str, Any]:
    """Return a run's losses in nats a token, and how it was made, as JSON."""
    losses = {
        name: {"nll": item.nll, "perplexity": item.perplexity, "oov_nll": item.oov_nll}
        for name, item in result.methods.items()
    }
    read = {"tokens": result.scenario.tokens, "update_every": result.scenario.extra["update_every"]}
    return {"provenance": dict(result.provenance), **read, "methods": losses}


def main(folder: Path, file: Path) -> None:
    write_json(file, {run: told(Result.load(folder / name / "result.json")) for run, name in RUNS.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
