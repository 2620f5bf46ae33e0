"""Losses of the same tokens under two versions of the code: how far apart they are, by method.

Each run is a folder of `hebblm-eval --log-samples`, made by its own checkout at the same settings.

Usage: python -m recipes.same_losses CHANGE BEFORE AFTER [CHANGE BEFORE AFTER ...]
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hebblm.files import read_json, write_json

LOSS = "nll_"
RECORD = Path(__file__).parent / "study" / "same-losses.json"


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


def table() -> str:
    """Return the record as a table: how many methods lose the same to the bit, and how far the others are apart."""
    rows = [
        "| Change | text | tokens | methods | equal to the bit | the others, at most, nats a token | in the mean |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for pair in read_json(RECORD)["pairs"]:
        scenario, methods = pair["scenario"], list(pair["methods"].values())
        other = [each for each in methods if each["equal"] < 1]
        largest = max((each["largest_difference"] for each in other), default=None)
        mean = max((abs(each["mean_difference"]) for each in other), default=None)
        rows.append(
            f"| {pair['change']}, `{pair['before'][:12]}` to `{pair['after'][:12]}` | "
            f"{scenario['source']} to {scenario['target']}, {scenario['split']} | {scenario['tokens']:,} | "
            f"{len(methods)} | {len(methods) - len(other)} | "
            f"{'-' if largest is None else f'{largest:.0e}'} | {'-' if mean is None else f'{mean:.0e}'} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Compare pairs of runs, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="CHANGE BEFORE AFTER")
    runs = parser.parse_args().runs
    found = [
        {"change": change, **compared(Path(before), Path(after))}
        for change, before, after in zip(runs[::3], runs[1::3], runs[2::3], strict=True)
    ]
    write_json(RECORD, {"command": f"python -m recipes.same_losses {shlex.join(runs)}", "pairs": found})
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
