"""Time whole commands on a quiet machine and beside one busy process, by how OpenMP's threads wait.

Usage: python -m recipes.busy FILE LOAD REPEATS   (LOAD: quiet, counting or products; rows of other loads stay in FILE)

The commands take turns, so that a machine whose speed drifts does so for all of them. On two cores and with the tiny
model of pydoc in the cache a load takes some minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from hebblm.provenance import provenance
from recipes import smoke_text
from recipes.bench.machine import cpu_name
from recipes.bench.record import BenchResult, Row
from recipes.bench.timing import Timing

LOADS = {
    "quiet": "",
    "counting": "while True: pass",
    "products": "import torch\na = torch.eye(512)\nwhile True: a @ a",
}
LIBGOMP = {"GOMP_SPINCOUNT": "300000"}
"""What libgomp does where nothing is set."""
WAYS = {
    "libgomp": LIBGOMP,
    "hebblm": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
TOKENS = 4000
COMMANDS = {
    "evaluation": f"hebblm-eval --cross-domain pydoc-to-numpy --methods lstm,dynamic --max-tokens {TOKENS}",
    "training": "hebblm-train --corpus text:pydoc.txt --preset tiny --epochs 1",
}


@contextmanager
def beside(load: str) -> Iterator[None]:
    """Keep a process busy; one that multiplies has two threads, which wait as libgomp lets them."""
    if not LOADS[load]:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", LOADS[load]], env=os.environ | LIBGOMP)
    try:
        yield
    finally:
        other.kill()
        other.wait()


def seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """Return what a whole process takes."""
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, capture_output=True)
    return time.perf_counter() - started


def reading(result: Path) -> float | None:
    """Return what the base took to read the stream, None where nothing was evaluated."""
    if not result.exists():
        return None
    parts = json.loads(result.read_text(encoding="utf-8"))["seconds"]["parts"]
    return sum(part["seconds"] for part in parts if part["name"] == "base")


def rows(load: str, repeats: int, folder: Path) -> Iterator[Row]:
    """Yield the evaluation and the training, each in every way in turn."""
    smoke_text.main(folder)
    words = len((folder / "pydoc.txt").read_text(encoding="utf-8").split())
    for (name, command), tokens in zip(COMMANDS.items(), (TOKENS, words), strict=True):
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        read: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn, (way, environment) in product(range(repeats), WAYS.items()):
            place = folder / f"{name}-{way}-{turn}"
            whole = [*shlex.split(command), "--output-path", str(place)]
            taken[way].append(seconds(whole, environment, folder))
            base = reading(place / "result.json")
            read[way] += [] if base is None else [base]
        case = {"command": command, "load": load, "environment": WAYS, "cores": os.cpu_count()}
        values = {f"seconds_{way}": statistics.median(found) for way, found in taken.items()}
        values |= {f"seconds_base_{way}": statistics.median(found) for way, found in read.items() if found}
        timings = {way: Timing(tuple(found), (tokens,) * repeats) for way, found in taken.items()}
        references = {way: "libgomp" for way in WAYS if way != "libgomp"}
        yield Row(f"whole {name}", case, timings, references, values)


def main(path: Path, load: str, repeats: int) -> None:
    """Measure beside a load, and add the rows to the file."""
    kept = BenchResult.load(path).rows if path.exists() else ()
    command = shlex.join(["python", "-m", "recipes.busy", str(path), load, str(repeats)])
    record = provenance(command, device="cpu", seed=1111) | {"cpu": cpu_name()}
    with tempfile.TemporaryDirectory() as folder, beside(load):
        found = tuple(rows(load, repeats, Path(folder)))
    others = tuple(row for row in kept if row.case["load"] != load)
    BenchResult("busy", record, {"repeats": repeats}, (*others, *found), complete=True).save(path)
    for row in found:
        print(row.name, load, {name: round(value, 2) for name, value in row.values.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
