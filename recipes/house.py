"""How much there is to hold in one's head: wheel, rooms, circles of imports, the way of three
settings, and how dense the code is.

python -m recipes.house

exits with status 1 if the wheel is too large or modules import each other in a circle. The other
numbers have no limit: they are for people.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import grimp

from recipes.density import densities, table

ROOT = Path(__file__).parents[1]
PACKAGES = ("hebblm", "awd_lstm")
WHEEL_BYTES = 12_000_000
COMMAND = ("--checkpoint", "tiny-pydoc-raw", "--max-tokens", "40", "--methods", "knn,mbpa")
"""A run that has all three settings below; its text and folder follow."""


@dataclass(frozen=True)
class Setting:
    """A setting that is followed on its way, with a value like no other number of the run.

    Args:
        name: its name in the code.
        value: its value.
        options: words of the command line that set it.
    """

    name: str
    value: float
    options: tuple[str, ...]


SETTINGS = (
    Setting("l2_to_base", 0.0123, ("--set", "mbpa.l2_to_base=0.0123")),
    Setting("log_neighbors", 35_171, ("--log-neighbors", "35171", "--log-samples")),
    Setting("unk_share", 0.3719, ("--vocabulary", "open", "--unk-share", "0.3719")),
)
"""A hyper-parameter of a method, an option of an evaluation, and an option of a scenario."""


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


def rooms() -> tuple[int, int, int]:
    """Return the packages with modules of their own, the pairs of them with an import from one
    to the other, and the pairs that import each other.
    """
    graph = grimp.build_graph(*PACKAGES)
    room = {name: name.rpartition(".")[0] or name for name in graph.modules}
    for name in graph.modules:
        if graph.find_children(name):
            room[name] = name
    arrows = {
        (room[name], room[other])
        for name in graph.modules
        for other in graph.find_modules_directly_imported_by(name)
        if room[name] != room[other]
    }
    mutual = [pair for pair in arrows if pair[0] < pair[1] and pair[::-1] in arrows]
    return len(set(room.values())), len(arrows), len(mutual)


def ways() -> dict[str, list[str]]:
    """Return by setting the functions that have it in their hands on its way from the command line
    to where it is used.

    These have its value in a variable, or are given a dataclass with it and read it from there. One
    that passes a mapping, options or a rule on without looking at this value is not counted.
    """
    from hebblm.cli.eval import main

    found: dict[str, dict[str, None]] = {setting.name: {} for setting in SETTINGS}

    def watch(frame: FrameType, event: str, _: object) -> None:
        module = _module(frame.f_code.co_filename) if event == "return" else None
        if module is None:
            return
        values = [*frame.f_locals.values()]
        for setting in SETTINGS:
            if any(_holds(value, setting, frame) for value in values):
                function = frame.f_code.co_qualname.partition(".<locals>")[0]
                found[setting.name][f"{module}:{function}"] = None

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as quiet:
        text = Path(folder, "text.txt")
        text.write_text("an array is a grid of values\nall of the same type\n" * 5)
        words = [*COMMAND, "--text", str(text), "--output-path", folder]
        for setting in SETTINGS:
            words += setting.options
        with redirect_stdout(quiet), redirect_stderr(quiet):
            threading.setprofile(watch)
            sys.setprofile(watch)
            try:
                status = main(words)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    assert status == 0, "the run that is watched fails"
    return {name: list(functions) for name, functions in found.items()}


@cache
def _module(file: str) -> str | None:
    """Return the module of a file of the packages, None for another file."""
    path = Path(file)
    if not any(path.is_relative_to(ROOT / name) for name in PACKAGES):
        return None
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _holds(value: object, setting: Setting, frame: FrameType) -> bool:
    """Return whether a variable of a function has a setting's value, or an object from which the
    function reads it.
    """
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return value == setting.value
    if isinstance(value, str):
        return value in (str(setting.value), f"mbpa.l2_to_base={setting.value}")
    if not is_dataclass(value) or setting.name not in frame.f_code.co_names:
        return False
    return getattr(value, setting.name, None) == setting.value


def main() -> int:
    """Print each number, and return 1 if a limit is passed."""
    print(f"{lines(*PACKAGES):,} lines of the packages, {lines('tests'):,} of the tests")
    size = wheel_bytes()
    print(f"{size / 1e6:.1f} MB of wheel (at most {WHEEL_BYTES / 1e6:.0f})")
    count, arrows, mutual = rooms()
    print(f"{count} packages with {arrows} imports between them, {mutual} of them both ways")
    groups = circles()
    print(f"{len(groups)} circles of imports (0 allowed)")
    for group in groups:
        print(f"  {', '.join(group)}")
    for name, functions in ways().items():
        files = {function.partition(":")[0] for function in functions}
        print(f"{len(files)} files on the way of {name}, {len(functions)} functions")
        for function in functions:
            print(f"  {function}")
    for package in PACKAGES:
        paths = sorted((ROOT / package).rglob("*.py"))
        print(f"{package}, per 1,000 lines, and the range of other projects")
        print(table(densities(paths)))
    return int(size > WHEEL_BYTES or bool(groups))


if __name__ == "__main__":
    sys.exit(main())
