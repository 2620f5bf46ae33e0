"""The cost of this checkout and of the prototype of its kernels, in turn.

The prototype runs in a worktree of the commit that it was written for, with its folder on the
path. Each turn is a process of its own, which reads the text once to warm up, and prints processor
time inside the evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hebblm.io.files import write_json
from hebblm.io.provenance import provenance
from recipes.bench.machine import cpu_name
from recipes.bench.timing import Spread

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import json, sys, time
time.perf_counter = time.process_time  # one clock, whatever the version takes
given = json.loads(sys.argv[1])
import torch
torch.set_num_threads(given["threads"])
import hebblm
assert hebblm.__file__.startswith(given["root"]), hebblm.__file__
if given["patched"]:
    import fastpatch
    fastpatch.OPT["bf16"] = True
    fastpatch.on()
options = {"context": given["context"]} if given["context"] else {}
lm = hebblm.load(given["model"], device="cpu", **options)
found = {}
for number, methods in enumerate([["base"], ["base", "best"], ["base"], ["base", "best"]]):
    # another seed each time: nothing goes on from a checkpoint of a run that was killed
    result = hebblm.evaluate(
        lm, given["text"], methods, max_tokens=given["tokens"], device="cpu",
        seed=given["seed"] + number,
    )
    found[",".join(methods)] = result.seconds.total
    found["nats"] = {name: one.nll for name, one in result.methods.items()}
print(json.dumps(found))
"""


def turn(given: dict[str, Any], folders: list[Path]) -> dict[str, Any]:
    """Return the seconds of base and ``base,best``, and the losses, by one version."""
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folders[0],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, and write JSON after every round."""
    parser = argparse.ArgumentParser(prog="python -m recipes.bench.prototype", description=__doc__)
    parser.add_argument("--worktree", type=Path, required=True, help="checkout of 620b0ca4")
    parser.add_argument("--prototype", type=Path, required=True, help="folder with fastpatch.py")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--text", type=Path, default=Path("docs/methods.md"))
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--context", type=int, default=1024, help="0 for a model without windows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, required=True)
    asked = parser.parse_args()
    given = {
        "model": asked.model,
        "text": str(asked.text.resolve()),
        "tokens": asked.tokens,
        "context": asked.context,
        "threads": asked.threads,
    }
    versions = {
        "now": (ROOT, [ROOT], False),
        "before": (asked.worktree, [asked.worktree], False),
        "prototype": (asked.worktree, [asked.worktree, asked.prototype], True),
    }
    command = "python -m recipes.bench.prototype " + " ".join(sys.argv[1:])
    record = {**provenance(command, device="cpu", seed=0), "cpu": cpu_name()}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for _ in range(asked.rounds):
        for name, (root, folders, patched) in versions.items():
            seed = time.time_ns() % 2**31
            one = {**given, "root": str(root.resolve()), "patched": patched, "seed": seed}
            found[name].append(turn(one, [folder.resolve() for folder in folders]))
        ratios = {
            name: Spread.of([run["base,best"] / run["base"] for run in runs]).to_json()
            for name, runs in found.items()
        }
        settings = {**given, "text": asked.text.name}
        document = {"provenance": record, "settings": settings, "ratios": ratios, "runs": found}
        write_json(asked.json, document)
        print({name: round(ratio["median"], 3) for name, ratio in ratios.items()}, flush=True)


if __name__ == "__main__":
    main()
