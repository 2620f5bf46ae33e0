"""How much there is to hold in one's head: lines, wheel, circles of imports, and the way of a
setting to its solver.

python -m recipes.house

exits with status 1 if one of them is above its limit below.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("hebblm", "awd_lstm")
WHEEL_BYTES = 12_000_000
FUNCTIONS = 10  # that have a setting in their hands between command line and solver

VALUE = "0.0123"  # of mbpa.pull; no other number of a run is like it


def lines(*folders: str) -> int:
    """Return the lines of Python under some folders."""
    return sum(
        len(path.read_bytes().splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    )


def wheel_bytes() -> int:
    """Return the size of the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
            str(ROOT),
        ]
        subprocess.run(command, check=True)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def circles() -> list[list[str]]:
    """Return the groups of modules that import each other in a circle, those for type checking
    alone included.
    """
    graph = grimp.build_graph(*PACKAGES)
    reached: dict[str, set[str]] = {}
    for module in graph.modules:
        reached[module], ahead = set(), [module]
        while ahead:
            new = graph.find_modules_directly_imported_by(ahead.pop()) - reached[module]
            reached[module] |= new
            ahead += new
    groups = {
        frozenset(other for other in seen if name in reached[other])
        for name, seen in reached.items()
    }
    return sorted(sorted(group) for group in groups if group)


def way_of_a_setting() -> list[str]:
    """Return the functions that have mbpa.pull in their hands on its way from ``--set
    mbpa.pull=...`` to the solver.

    These have its value, as text or number, in a variable, or are given the section ``mbpa`` and
    read it from there. One that passes a mapping, all settings or a rule on without looking at this
    value is not counted.
    """
    from hebblm.adapt.methods.mbpa import MbpaConfig
    from hebblm.cli.eval import main

    way: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: object) -> None:
        path, values = Path(frame.f_code.co_filename), frame.f_locals.values()
        if event != "return" or not any(
            path.is_relative_to(ROOT / package) for package in PACKAGES
        ):
            return
        held = any(
            isinstance(value, str | float) and value in (VALUE, float(VALUE)) for value in values
        )
        given = any(
            isinstance(value, MbpaConfig) and value.pull == float(VALUE) for value in values
        )
        if held or (given and "pull" in frame.f_code.co_names):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            way[f"{module}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"] = None

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as quiet:
        text = Path(folder, "text.txt")
        text.write_text("an array is a grid of values\nall of the same type\n" * 5)
        options = ["--checkpoint", "tiny-pydoc-raw", "--text", str(text), "--methods", "mbpa"]
        with redirect_stdout(quiet), redirect_stderr(quiet):
            threading.setprofile(watch)
            sys.setprofile(watch)
            try:
                main([*options, "--set", f"mbpa.pull={VALUE}"])
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    return list(way)


def within_limits() -> Iterator[bool]:
    """Print each number, and yield whether it is within its limit."""
    print(f"{lines(*PACKAGES):,} lines of the packages, {lines('tests'):,} of the tests")
    size = wheel_bytes()
    print(f"{size / 1e6:.1f} MB of wheel (at most {WHEEL_BYTES / 1e6:.0f})")
    yield size <= WHEEL_BYTES
    groups = circles()
    print(
        f"{len(groups)} circles of imports (none)", *(f"\n  {', '.join(group)}" for group in groups)
    )
    yield not groups
    way = way_of_a_setting()
    print(
        f"{len(way)} functions on the way of mbpa.pull (at most {FUNCTIONS})",
        *(f"\n  {name}" for name in way),
    )
    yield len(way) <= FUNCTIONS


if __name__ == "__main__":
    sys.exit(0 if all([*within_limits()]) else 1)
