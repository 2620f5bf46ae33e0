"""Cost of several processes: tokens a second, what they tell each other, and how far their numbers
are from one's.

Every run is a command of its own with one thread a process, of the same tokens; times are those of
the reading, without start and reports.

Usage: python -m recipes.scale.processes [--tokens 6400] [--processes 1 2 4] [--streams 1 8 32]
[--json FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from hebblm.io.files import read_json, write_json
from hebblm.io.provenance import provenance
from hebblm.report.tables.table import Column, Table
from recipes.bench.machine import cpu_name
from recipes.markdown import body

METHODS = "lstm,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb,best"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="small-wt2-raw")
    parser.add_argument("--target", default="numpy")
    parser.add_argument("--tokens", type=int, default=6400)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument(
        "--every", type=int, default=20, help="tokens of a stream between two updates"
    )
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as place:
        alone: dict[tuple[str, int], dict[str, Any]] = {}
        for methods, streams, processes in product(
            ("lstm", METHODS), options.streams, options.processes
        ):
            if processes > streams:
                continue
            folder = Path(place) / f"{len(rows)}"
            run(options, methods, streams, processes, folder)
            result = read_json(folder / "result.json")
            table = pq.read_table(folder / "tokens.parquet")
            losses = {
                name: table[f"nll_{name}"].to_numpy().astype(float) for name in methods.split(",")
            }
            first = alone.setdefault((methods, streams), losses)
            seconds = sum(part["seconds"] for part in result["seconds"]["parts"])
            rows.append(
                {
                    "methods": len(losses),
                    "streams": streams,
                    "processes": processes,
                    "tokens": len(table),
                    "seconds": seconds,
                    "tokens_a_second": len(table) / seconds,
                    **{
                        name: result["scenario"].get("processes", {}).get(name, 0)
                        for name in ("bytes_a_token", "seconds_a_token")
                    },
                    "largest_difference": max(
                        abs(float(nll.mean() - first[name].mean())) for name, nll in losses.items()
                    ),
                    "largest_difference_of_a_token": max(
                        float(abs(nll - first[name]).max()) for name, nll in losses.items()
                    ),
                }
            )
            print(rows[-1], flush=True)
    command = "python -m recipes.scale.processes " + " ".join(sys.argv[1:])
    made = {**provenance(command.strip(), device="cpu", seed=1111), "cpu": cpu_name(), "threads": 1}
    asked = {
        "model": options.model,
        "target": options.target,
        "methods": METHODS.split(","),
        "update_every": options.every,
        "cores": len(os.sched_getaffinity(0)),
    }
    write_json(options.json, {"provenance": made, "settings": asked, "rows": rows})
    return 0


def throughput() -> str:
    """Return the Markdown of what was measured, and of what made it."""
    made = read_json(Path(__file__).with_suffix(".json"))
    columns = (
        Column("Read by"),
        Column("B"),
        Column("P"),
        Column("tokens a second"),
        Column("times one stream's"),
        Column("kB sent a token"),
        Column("ms exchanging a token"),
        Column("largest difference of a mean, nats"),
        Column("of a single token"),
    )
    singly = {row["methods"]: row["tokens_a_second"] for row in made["rows"] if row["streams"] == 1}
    rows = tuple(
        (
            "the model alone" if row["methods"] == 1 else f"{row['methods']} methods",
            str(row["streams"]),
            str(row["processes"]),
            f"{row['tokens_a_second']:,.0f}",
            f"{row['tokens_a_second'] / singly[row['methods']]:.2f}",
            f"{row['bytes_a_token'] / 1e3:,.1f}",
            f"{row['seconds_a_token'] * 1e3:.2f}",
            f"{row['largest_difference']:.0e}",
            f"{row['largest_difference_of_a_token']:.0e}",
        )
        for row in made["rows"]
    )
    asked, by = made["settings"], made["provenance"]
    origin = (
        f"{asked['model']} reads {made['rows'][0]['tokens']:,} tokens of {asked['target']}, an "
        "update each "
        f"{asked['update_every']} tokens of a stream, one thread a process, {asked['cores']} "
        "cores, each row "
        "once: rows compare roughly. "
        f"[Measured](../recipes/scale/processes.json) by `{by['command']}`, commit "
        f"`{str(by['commit'])[:12]}`."
    )
    return f"{body(Table.of_cells('processes', '', columns, rows))}\n{origin}\n"


def run(
    options: argparse.Namespace, methods: str, streams: int, processes: int, folder: Path
) -> None:
    """Evaluate by a command."""
    words = ["--checkpoint", options.model, "--target", options.target, "--methods", methods]
    words += [
        "--max-tokens",
        str(options.tokens),
        "--update-every",
        str(options.every),
        "--device",
        "cpu",
    ]
    words += ["--streams", str(streams), "--log-samples"]
    started = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    python = [sys.executable, *(started if processes > 1 else [])]
    command = [*python, "-m", "hebblm.cli.eval", *words, "--output-path", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
