"""Losses of the same tokens under two versions of the code: how far apart they are, by method.

Each run is a folder of `hebblm-eval --log-samples`, made by its own checkout at the same settings.

Usage: python -m recipes.same_losses BEFORE AFTER [BEFORE AFTER ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hebblm.files import read_json, write_json

LOSS = "nll_"


def compared(before: Path, after: Path) -> dict[str, Any]:
    """Return what two runs over the same text are, and how far apart their losses lie.

    Returns:
        The text and the two versions, and by method the mean loss before, the mean and the largest difference (nats a
        token), the share of tokens whose losses are equal to the bit, and the settings of the second run.

    Raises:
        SystemExit: the runs read other tokens.
    """
    results = [read_json(folder / "result.json") for folder in (before, after)]
    tables = [pq.read_table(folder / "tokens.parquet") for folder in (before, after)]
    if tables[0]["token"] != tables[1]["token"]:
        sys.exit(f"{before} and {after} read other tokens; compare runs over the same text")
    methods = {}
    for column in tables[0].column_names:
        if column.startswith(LOSS) and column in tables[1].column_names:
            old, new = (table[column].to_numpy().astype(np.float64) for table in tables)
            change = new - old
            methods[column.removeprefix(LOSS)] = {
                "nll": float(old.mean()),
                "mean_difference": float(change.mean()),
                "largest_difference": float(np.abs(change).max()),
                "equal": float((change == 0).mean()),
                "hyperparameters": results[1]["methods"][column.removeprefix(LOSS)]["hyperparameters"],
            }
    scenario = {key: results[0]["scenario"][key] for key in ("source", "target", "split", "tokens")}
    made = [result["provenance"] for result in results]
    both = {key: made[1][key] for key in ("seed", "threads", "versions")}
    return {
        "scenario": scenario,
        "before": made[0]["commit"],
        "after": made[1]["commit"],
        **both,
        "methods": methods,
    }


def main() -> int:
    """Compare pairs of runs, and write them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "study" / "same-losses.json")
    options = parser.parse_args()
    found = [compared(*pair) for pair in zip(options.runs[::2], options.runs[1::2], strict=True)]
    write_json(
        options.json, {"command": "python -m recipes.same_losses " + " ".join(sys.argv[1:]), "pairs": found}
    )
    for pair in found:
        print(pair["scenario"], pair["before"][:12], "->", pair["after"][:12])
        for name, values in pair["methods"].items():
            print(f"  {name:24} {values['largest_difference']:.1e} at most, {values['equal']:.1%} equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
