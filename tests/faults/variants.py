"""Other versions and processors: a selection of the tests, and the losses of every method beside this machine's own.

``HEBBLM_PYTHONS`` may name further interpreters, separated by colons, in whose environments hebblm's dependencies and
pytest are installed; each is tried like the variants of this one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .figures import Case, Clock

HEADING = "Other versions and processors"
MENDED: tuple[str, ...] = (
    "tests that ask for FAISS failed where there is none",
    "values out of range of a search were taken where there is no FAISS to search with",
)
ROOT = Path(__file__).resolve().parents[2]
SELECTION = ("tests/unit/adapt", "tests/unit/memory")
TOLERANCE = 1e-4  # nats a token, of a mean over 600 tokens
SLOWER = 3.0  # times the processor seconds of the plain run at most: no cliff
BLOCKED = 'import sys\n\nsys.modules["faiss"] = None\n'
"""Run by Python as it starts: FAISS is then neither imported nor found."""


@dataclass(frozen=True)
class Variant:
    """An interpreter and its environment.

    Args:
        name: for people.
        python: the interpreter.
        environment: variables beside those of this process.
        without_faiss: FAISS cannot be imported.
    """

    name: str
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    without_faiss: bool = False

    def run(self, arguments: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
        """Run Python with arguments in the root of the checkout."""
        path = [str(ROOT)]
        if self.without_faiss:
            (scratch / "blocked").mkdir(exist_ok=True)
            (scratch / "blocked" / "sitecustomize.py").write_text(BLOCKED)
            path.insert(0, str(scratch / "blocked"))
        environment = {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(path)}
        return subprocess.run([self.python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def variants() -> list[Variant]:
    """Return the variants that this machine has, the plain one first."""
    narrow = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    found = [
        Variant("as installed"),
        Variant("FAISS absent", without_faiss=True),
        Variant("a processor without AVX-512", environment=narrow),
        Variant(
            "a processor without AVX2", environment={"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
        ),
    ]
    for python in filter(None, os.environ.get("HEBBLM_PYTHONS", "").split(os.pathsep)):
        said = Variant("", python).run(
            ["-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"], ROOT
        )
        version, _, torch = said.stdout.strip().partition(" ")
        found.append(Variant(f"Python {version}, torch {torch}", python))
    return found


def losses(variant: Variant, scratch: Path) -> dict[str, float]:
    """Return the mean loss of every method, nats, and under "seconds" what they took, as a variant computes them."""
    done = variant.run(["-m", "tests.faults.losses"], scratch)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def count_tests(variant: Variant, scratch: Path, case: Case, selection: tuple[str, ...]) -> int:
    """Run a selection of the tests, and count those that pass or fail; return how many skipped themselves."""
    done = variant.run(
        ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--tb=line", "-m", "not slow", *selection], scratch
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last[0])}
    wrong = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for _ in range(counts.get("passed", 0)):
        case.count()
    for at in range(counts.get("failed", 0) + counts.get("error", 0)):
        case.count(f"{wrong[at] if at < len(wrong) else last[0]}")
    if not counts:
        case.count(f"no tests: {last[0]}")
    return counts.get("skipped", 0)


def cases(scratch: Path, clock: Clock, selection: tuple[str, ...] = SELECTION) -> Iterator[tuple[str, Case]]:
    """Try every variant: the tests, and every method's loss beside the plain one's."""
    plain: dict[str, float] = {}
    for variant in variants():
        if clock.over():
            return
        case = Case()
        skipped = count_tests(variant, scratch, case, selection)
        tests = case.tried
        try:
            found = losses(variant, scratch)
        except RuntimeError as error:
            case.count(f"losses: {error}")
            yield variant.name, case
            continue
        plain = plain or found
        apart = {name: abs(found[name] - plain[name]) for name in plain if name != "seconds"}
        for name, difference in apart.items():
            case.count("" if difference <= TOLERANCE else f"{name}: {difference:.1e} nats apart")
        slower = found["seconds"] / plain["seconds"]
        case.count("" if slower <= SLOWER else f"takes {slower:.1f} times as long")
        case.note = (
            f"{tests} tests, {skipped} more skipped; {len(apart)} methods at most {max(apart.values()):.1e} nats "
            f"apart, {TOLERANCE:g} allowed; {slower:.2f} of the time"
        )
        yield variant.name, case
