"""How a watching reader is to use: seconds until it answers on a saved memory, seconds an answer,
and kills survived.

    python -m recipes.watch tiny-pydoc-raw smollm2-135m --kills 50 --output recipes/watch.json

Each model first reads documents of NumPy's linear algebra from a folder. "start" is the time from
the command to the first answer; "answer" is that of the lines after it, the median; "processor" is
what a run takes of the processor with all its answers, which other programs do not change. A kill
(-9) comes at a random moment between the report of a first new file and the time that two more
take: while files are read and saved, not while Python starts. Afterwards every document that was
reported as read must be there, once.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hebblm
from hebblm.io.files import check_writable, write_json
from hebblm.io.provenance import command_line, provenance
from hebblm.runtime.progress import log
from recipes.rank.texts import text_of

LINES = ["The ", "Return the ", "a matrix ", "of the array ", "The function "]
RUNS = 5


def watching(model: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a reader that watches ``notes`` in a folder and keeps what it reads in ``known``."""
    command = [
        sys.executable,
        "-m",
        "hebblm.cli.read",
        model,
        "--watch",
        "notes",
        "--save",
        "known",
        *options,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def documents(model: str, folder: Path) -> list[str]:
    """Return the names of the documents that a kept reader knows."""
    return [
        document.name for document in hebblm.load(model).reader(memory=folder / "known").documents()
    ]


def read(model: str, folder: Path, characters: int) -> None:
    """Read so much documentation, in ten files."""
    notes = folder / "notes"
    notes.mkdir()
    text, size = text_of("docs"), characters // 10
    for number in range(10):
        (notes / f"{number}.txt").write_text(text[number * size : (number + 1) * size])
    with watching(model, folder, "--interactive") as process:
        process.communicate("")
    assert process.returncode == 0


def timed(model: str, folder: Path) -> dict[str, Any]:
    """Return seconds from the command to its first answer, and those of each further answer."""
    starts, answers, processor = [], [], []
    for _ in range(RUNS):
        begun, used = time.perf_counter(), _used()
        with watching(model, folder, "--interactive") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for number, line in enumerate(LINES):
                asked = time.perf_counter()
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
                while not (answer := process.stdout.readline()).startswith(f"{line}..."):
                    if not answer:
                        raise RuntimeError(f"{model} ended before it answered {line!r}")
                now = time.perf_counter()
                if number:
                    answers.append(now - asked)
                else:
                    starts.append(now - begun)
            process.stdin.close()
        processor.append(_used() - used)
    return {
        "start": statistics.median(starts),
        "fastest start": min(starts),
        "processor": statistics.median(processor),
        "answer": statistics.median(answers),
        "slowest answer": max(answers),
    }


def _used() -> float:
    """Return the seconds of the processor that ended processes took."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def killed(model: str, folder: Path, kills: int, generator: random.Random) -> dict[str, int]:
    """Return how many kills were survived, and how many came while something was read."""
    whole, told, survived, amid = 0.0, set[str](), 0, 0
    text = text_of("docs")
    for number in range(-1, kills):
        for letter in "abc":
            at = generator.randrange(len(text) - 500)
            (folder / "notes" / f"{number}{letter}.txt").write_text(text[at : at + 500])
        with watching(model, folder) as process:
            assert process.stdout is not None
            told.add(process.stdout.readline().partition(":")[0])
            if number < 0:  # how long two files take undisturbed
                begun = time.perf_counter()
                for _ in range(2):
                    told.add(process.stdout.readline().partition(":")[0])
                whole = time.perf_counter() - begun
            else:
                time.sleep(generator.uniform(0, whole))
            process.kill()
            told |= {
                line.partition(":")[0]
                for line in process.stdout.read().splitlines()
                if "tokens read" in line
            }
        known = documents(model, folder)
        survived += number >= 0 and told <= set(known) and len(known) == len(set(known))
        amid += number >= 0 and len(known) < 10 + 3 * (number + 2)
        log(f"{number + 1} of {kills} kills, {survived} survived")
    return {"kills": kills, "before all was read": amid, "survived": survived}


def main() -> int:
    """Measure every model; kill the first one."""
    parser = argparse.ArgumentParser(prog="python -m recipes.watch", description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument(
        "--characters",
        type=int,
        default=20_000,
        help="of documentation that each model reads first",
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    check_writable(options.output.parent)
    found: dict[str, Any] = {}
    for model in options.models:
        with tempfile.TemporaryDirectory() as place:
            read(model, Path(place), options.characters)
            found[model] = timed(model, Path(place))
            if model == options.models[0]:
                found[model] |= killed(model, Path(place), options.kills, random.Random(1111))
        log(f"{model}: {found[model]}")
    about = provenance(
        "python -m " + command_line("recipes.watch", sys.argv[1:]), device="cpu", seed=1111
    )
    write_json(options.output, {**about, "characters": options.characters, "models": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
