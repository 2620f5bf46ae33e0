"""Cost of building a memory of a training text: ``hebblm-memory build`` as one whole process, its
start included.

Usage: python -m recipes.scale.build [--model small-wt2-raw] [--corpus wt2] [--set memory.store=disk
...] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from hebblm.io.files import write_json
from hebblm.io.provenance import provenance
from hebblm.memory.persistence import read_manifest
from hebblm.text import resolve
from recipes.bench.machine import cpu_name


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="small-wt2-raw")
    parser.add_argument("--corpus", default="wt2", help="whose training text is remembered")
    parser.add_argument("--set", nargs="+", default=[], help="as hebblm-memory takes it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    with TemporaryDirectory() as place:
        text, out = Path(place, "train.txt"), Path(place, "memory")
        with text.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in resolve(options.corpus).lines("train"))
        words = [
            "build",
            "--model",
            options.model,
            "--text",
            str(text),
            "--output-path",
            str(out),
            "--device",
            "cpu",
        ]
        words += ["--set", *options.set] if options.set else []
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "hebblm.cli.memory", *words],
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
            check=True,
        )
        seconds, manifest = time.perf_counter() - started, read_manifest(out)
    row = {
        "entries": manifest.count,
        "width": manifest.dim,
        "index": None if manifest.index is None else manifest.index.spec,
        "seconds": seconds,
        "bytes": {name: size for name, (size, _) in manifest.files.items()},
        "resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    }
    command = "python -m recipes.scale.build " + " ".join(sys.argv[1:])
    made = {
        **provenance(command.strip(), device="cpu", seed=0),
        "cpu": cpu_name(),
        "threads": options.threads,
    }
    settings = {"model": options.model, "corpus": options.corpus, "set": options.set}
    write_json(options.json, {"provenance": made, "settings": settings, "rows": [row]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
