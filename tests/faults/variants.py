"""What hebblm runs with: other versions and processors, and a network that nothing asks for.

Of every variant a selection of the tests is run, and the losses of every method are compared with
this machine's own. ``HEBBLM_PYTHONS`` may name further interpreters, separated by colons, in whose
environments hebblm's dependencies and pytest are installed. Run as a script, this file prints the
losses as JSON.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory

from ..support import toy
from .sandbox import Case, Clock, Group

ROOT = Path(__file__).resolve().parents[2]
SELECTION = ("tests/unit/adapt", "tests/unit/memory")
TOKENS = 600
SETTINGS = toy.LEARNED.replaced(MbpaAbsoluteConfig(lr=0.01))  # at the default rate it diverges here
TOLERANCE = 1e-4  # nats a token, of a mean over 600 tokens
SLOWER = 3.0  # times the processor seconds of the plain run at most: no cliff
BLOCKED = 'import sys\n\nsys.modules["faiss"] = None\n'
"""Run by Python as it starts: FAISS is then neither imported nor found."""


@dataclass(frozen=True)
class Variant:
    """An interpreter and its environment."""

    name: str
    python: str = sys.executable
    # variables beside those of this process
    environment: Mapping[str, str] = field(default_factory=dict)
    without_faiss: bool = False  # it cannot be imported

    def run(self, arguments: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
        """Run Python with arguments in the root of the checkout."""
        path = [str(ROOT)]
        if self.without_faiss:
            (scratch / "blocked").mkdir(exist_ok=True)
            (scratch / "blocked" / "sitecustomize.py").write_text(BLOCKED)
            path.insert(0, str(scratch / "blocked"))
        environment = {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(path)}
        return subprocess.run(
            [self.python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )


def variants() -> list[Variant]:
    """The variants that this machine has, the plain one first."""
    narrow = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    old = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    found = [
        Variant("as installed"),
        Variant("FAISS absent", without_faiss=True),
        Variant("a processor without AVX-512", environment=narrow),
        Variant("a processor without AVX2", environment=old),
    ]
    for python in filter(None, os.environ.get("HEBBLM_PYTHONS", "").split(os.pathsep)):
        ask = ["-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"]
        version, _, torch = Variant("", python).run(ask, ROOT).stdout.strip().partition(" ")
        found.append(Variant(f"Python {version}, torch {torch}", python))
    return found


def losses() -> dict[str, float]:
    """The mean loss by method over one small stream, nats, and under "seconds" the processor time
    of all.
    """
    started, found = time.process_time(), {}
    stream = toy.stream_of(toy.tokens(0, TOKENS))
    for moving in (False, True):
        base = toy.base_of(toy.tiny_model(), lr=1e-3 if moving else 0.0)
        context = toy.context_of(base, FlatMemory(toy.DIM), stream)
        rules = {
            name: m.predictor(SETTINGS)
            for name, m in METHODS.items()
            if m.uses_dynamic_base == moving
        }
        scores = evaluate(base, [context], rules, stream, UnionVocabulary(), Schedule(20))
        found |= {name: float(nll.mean()) for name, nll in scores.nll.items()}
    return {**found, "seconds": time.process_time() - started}


def losses_of(variant: Variant, scratch: Path) -> dict[str, float]:
    """The same as a variant computes them."""
    done = variant.run(["-m", "tests.faults.variants"], scratch)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def count_tests(variant: Variant, scratch: Path, case: Case, selection: tuple[str, ...]) -> int:
    """Run a selection of the tests, and count those that pass or fail; return how many skipped
    themselves.
    """
    options = ["-n", "0", "-p", "no:cacheprovider", "--tb=line", "-m", "not slow"]
    done = variant.run(["-m", "pytest", *options, *selection], scratch)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
    counts = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last[0])
    }
    wrong = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for _ in range(counts.get("passed", 0)):
        case.count()
    for at in range(counts.get("failed", 0) + counts.get("error", 0)):
        case.count(f"{wrong[at] if at < len(wrong) else last[0]}")
    if not counts:
        case.count(f"no tests: {last[0]}")
    return counts.get("skipped", 0)


def variant_cases(scratch: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Try every variant: the tests, and every method's loss beside the plain one's."""
    plain: dict[str, float] = {}
    for variant in variants():
        if clock.over():
            return
        case = Case()
        skipped = count_tests(variant, scratch, case, SELECTION)
        tests = case.tried
        try:
            found = losses_of(variant, scratch)
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
            f"{tests} tests, {skipped} more skipped; {len(apart)} methods at most "
            f"{max(apart.values()):.1e} nats "
            f"apart, {TOLERANCE:g} allowed; {slower:.2f} of the time"
        )
        yield variant.name, case


PACKAGES = ("hebblm", "awd_lstm")
SILENT = """
import importlib, json, sys
asked = []
heard = "socket.connect socket.getaddrinfo socket.sendto socket.sendmsg urllib.Request".split()
def hear(event, arguments):
    if event in heard:
        asked.append(f"{event} {arguments!r:.100}")
sys.addaudithook(hear)
found = {}
for name in json.loads(sys.argv[1]):
    asked.clear()
    try:
        importlib.import_module(name)
    except ImportError as error:
        asked.append(f"cannot be imported: {error}")
    found[name] = list(asked)
print(json.dumps(found))
"""
NETWORK = (
    *(
        "socket",
        "ssl",
        "http",
        "urllib.request",
        "urllib3",
        "requests",
        "ftplib",
        "smtplib",
        "pooch",
        "aiohttp",
    ),
    "httpx",
)
ALLOWED = {
    # pooch compares the sha256 of every file before it takes its place; a HEAD asks whether the hub
    # is there.
    "hebblm/io/download.py": {"pooch", "urllib.request"},
    "hebblm/serve/run.py": {"socket"},  # listens where you say; it asks nobody
    "hebblm/io/files.py": {"socket"},  # the host's name, in names of temporary files
}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def silent_imports() -> Case:
    """Import every module in a fresh interpreter, and listen for sockets."""
    case = Case()
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources()
    ]
    command = [sys.executable, "-c", SILENT, json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    for name, asked in json.loads(done.stdout.splitlines()[-1]).items():
        case.count(f"{name}: {asked[0]}" if asked else "")
    case.note = "modules imported without a socket"
    return case


def network_imports() -> Case:
    """Look at what each file imports; only the one that compares hashes may ask a server."""
    case = Case()
    for path in sources():
        name = str(path.relative_to(ROOT))
        named = {
            word
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for word in _imported(node)
            if any(word == module or word.startswith(f"{module}.") for module in NETWORK)
        }
        others = named - ALLOWED.get(name, set())
        case.count(f"{name} imports {', '.join(sorted(others))}" if others else "")
    case.note = (
        "files; one downloads and compares the sha256, one asks whether the hub is there, one "
        "listens"
    )
    return case


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return (
        [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
    )


def supply_cases(_: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Listen and look."""
    yield "network at import", silent_imports()
    yield "network in the sources", network_imports()


VARIANTS = Group(
    "Other versions and processors",
    variant_cases,
    (
        "tests that ask for FAISS failed where there is none",
        "values out of range of a search were taken where there is no FAISS to search with",
    ),
)
SUPPLY = Group("Supply", supply_cases)

if __name__ == "__main__":
    print(json.dumps(losses()))
