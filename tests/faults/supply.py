"""What comes from elsewhere: no network at import, one place that downloads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .figures import Case, Clock

HEADING = "Supply"
MENDED: tuple[str, ...] = ()
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hebblm", "awd_lstm")
SILENT = """
import importlib, json, sys
asked = []
def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg", "urllib.Request"):
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
    "httpx",
)
ALLOWED = {
    # pooch compares the sha256 of every file before it takes its place; a HEAD asks whether the hub is there.
    "hebblm/download.py": {"pooch", "urllib.request"},
    "hebblm/files.py": {"socket"},  # the host's name, in names of temporary files
}


def sources() -> list[Path]:
    """Return the files of the packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def modules() -> list[str]:
    """Return the names of all modules."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources()]
    return [name.removesuffix(".__init__") for name in names]


def silent_imports() -> Case:
    """Import every module in a fresh interpreter, and listen for sockets."""
    case = Case()
    done = subprocess.run(
        [sys.executable, "-c", SILENT, json.dumps(modules())], capture_output=True, text=True, cwd=ROOT, check=True
    )
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
    case.note = "files; one downloads and compares the sha256, one asks whether the hub is there"
    return case


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def cases(_: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Listen and look."""
    yield "network at import", silent_imports()
    yield "network in the sources", network_imports()
