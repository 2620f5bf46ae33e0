"""All of it: figures as JSON, and as the tables of recipes/reliability.md.

Usage: python -m tests.faults.run [GROUP ...] [--damaged 10000] [--kills 100] [--commands eval,tune]
[--add] [--page]
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hebblm.io.files import read_json, write_json, write_text
from hebblm.io.locks import file_lock
from hebblm.io.provenance import commit, versions

from . import disk, killed, numbers, options, serving, texts, variants
from .damage import DEFECTS, REFUSED, RIGHT, campaign
from .formats import FORMATS
from .killed import JOBS
from .sandbox import Clock, Group

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "recipes" / "reliability.json", ROOT / "recipes" / "reliability.md"
BEGIN, END = "<!-- figures: written by tests/faults/run.py -->", "<!-- end of figures -->"
OTHERS: dict[str, Group] = {
    "disk": disk.GROUP, "together": killed.GROUP, "texts": texts.TEXTS, "pages": texts.MARKUP,
    "options": options.GROUP,
    "numbers": numbers.ENDS, "soak": numbers.SOAK, "variants": variants.VARIANTS,
    "supply": variants.SUPPLY, "serve": serving.ASKED,
    "serve-stopped": serving.STOPPED,
}  # fmt: skip
"""Further groups by name, in the order of the page."""


def damage_all(
    record: dict[str, Any], scratch: Path, count: int, only: Sequence[str] = ()
) -> Iterator[str]:
    """Put figures of damaged files into a record, a format at a time, and yield its name."""
    for number, form in enumerate(form for form in FORMATS if not only or form.name in only):
        counts, defects = campaign(form, scratch / str(number), count)
        record["damaged"][form.name] = {"hashed": form.hashed, **counts, "defects": defects[:20]}
        print(form.name, dict(counts), *defects[:5], sep="\n  ", flush=True)
        yield f"damaged: {form.name}"


def kill_all(
    record: dict[str, Any],
    scratch: Path,
    count: int,
    commands: list[str],
    minutes: float,
    *,
    add: bool,
) -> Iterator[str]:
    """Put figures of killed commands into a record, a command at a time, and yield which they are.

    With ``add`` it goes on behind the kills whose figures there are, and adds to them.
    """
    for name in commands:
        before = _record()["killed"].get(name, {}) if add else {}
        first = before.get("tried", 0)
        found = killed.campaign(name, scratch / name.replace(" ", "-"), count, minutes, first)
        for key in ("tried", "survived", "resumed", "ended", "found") if before else ():
            found[key] += before[key]
        record["killed"][name] = found
        print(name, found, flush=True)
        yield f"killed: {name}" + (f", from {first}" if first else "")


def try_all(record: dict[str, Any], scratch: Path, group: str, clock: Clock) -> Iterator[str]:
    """Put figures of one of the other groups into a record, a case at a time, and yield its
    name.
    """
    found: dict[str, Any] = {}
    for name, case in OTHERS[group].cases(scratch, clock):
        found[name] = case.to_json()
        record["others"][group] = {"mended": len(OTHERS[group].mended), "cases": found}
        print(
            f"{group}: {name}: {case.survived} of {case.tried} {case.note}",
            *case.defects[:5],
            sep="\n  ",
            flush=True,
        )
        yield group


def table(record: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| Damaged | tried | loaded as it was | refused in one line | defects |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, counts in record["damaged"].items():
        wrong = sum(counts.get(what, 0) for what in DEFECTS)
        tried = wrong + counts.get(RIGHT, 0) + counts.get(REFUSED, 0)
        right = counts.get(RIGHT, 0)
        whole = f"{right:,}" if counts["hashed"] else f"{right:,} as something"
        lines.append(f"| {name} | {tried:,} | {whole} | {counts.get(REFUSED, 0):,} | {wrong:,} |")
    lines += [
        "",
        "| Killed with -9, run again | tried | same files, no others "
        "| of these went on, not anew |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {one['tried']:,} | {one['survived']:,} | {one['resumed']:,} |"
        for name, one in record["killed"].items()
    ]
    for name, group in OTHERS.items():
        if name in record["others"]:
            lines += ["", *_of_group(group, record["others"][name]["cases"])]
    return "\n".join(lines)


def _of_group(group: Group, cases: dict[str, Any]) -> list[str]:
    """The table of a group, and what fell at first."""
    lines = [f"| {group.heading} | tried | survived | |", "| --- | --- | --- | --- |"]
    for name, case in cases.items():
        lines.append(f"| {name} | {case['tried']:,} | {case['survived']:,} | {case['note']} |")
    if group.mended:
        lines += ["", f"Mended ({len(group.mended)}): {'; '.join(group.mended)}."]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = ("damaged", "killed", *OTHERS)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(known)}; all if none is named")
    parser.add_argument("--damaged", type=int, default=10_000, help="files of each format")
    parser.add_argument("--formats", nargs="+", default=(), help="damage files of these alone")
    parser.add_argument("--kills", type=int, default=100, help="of each command")
    parser.add_argument(
        "--minutes",
        type=float,
        help="of each group, and of each command killed; all that it takes if not given",
    )
    parser.add_argument("--commands", default=",".join(JOBS), help="that are killed")
    parser.add_argument("--add", action="store_true", help="kill only as often as is missing")
    parser.add_argument(
        "--page", action="store_true", help="only write the page from the figures there are"
    )
    asked = parser.parse_args()
    if unknown := set(asked.groups) - set(known):
        parser.error(f"unknown group {unknown.pop()!r}; choose from {', '.join(known)}")
    for group in () if asked.page else asked.groups or known:
        with tempfile.TemporaryDirectory() as scratch:
            _measure(group, asked, Path(scratch))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n{table(_record())}\n{END}{rest.partition(END)[2]}")


def _record() -> dict[str, Any]:
    return {
        "damaged": {},
        "killed": {},
        "others": {},
        "made": {},
        **(read_json(RECORD) if RECORD.is_file() else {}),
    }


def _measure(group: str, asked: argparse.Namespace, scratch: Path) -> None:
    """Make the figures of a group anew; each is written as it comes, beside those that others wrote
    meanwhile.
    """
    parts: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
        "damaged": lambda record: damage_all(record, scratch, asked.damaged, asked.formats),
        "killed": lambda record: kill_all(
            record,
            scratch,
            asked.kills,
            asked.commands.split(","),
            asked.minutes or float("inf"),
            add=asked.add,
        ),
    }
    started, own = time.monotonic(), {"damaged": {}, "killed": {}, "others": {}}
    said = {
        "command": shlex.join(["python", "-m", "tests.faults.run", *sys.argv[1:]]),
        "seed": "numbers from 0",
    }
    said |= {"commit": commit(), "versions": versions()}
    for name in parts.get(
        group, lambda record: try_all(record, scratch, group, Clock(asked.minutes))
    )(own):
        with file_lock(RECORD, "the figures"):  # several groups and commands may be tried at once
            record = _record()
            for section, found in own.items():
                record[section] |= found
            record["made"][name] = {**said, "seconds": round(time.monotonic() - started)}
            write_json(RECORD, record)


if __name__ == "__main__":
    main()
