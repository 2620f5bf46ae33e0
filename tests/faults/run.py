"""All of it: figures as JSON, and as the table of docs/reliability.md.

Usage: python -m tests.faults.run [--damaged 10000] [--kills 100] [--commands eval,tune]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hebblm.files import read_json, write_json, write_text
from hebblm.locks import held
from hebblm.provenance import commit, versions

from .damage import DEFECTS, REFUSED, RIGHT, campaign
from .formats import FORMATS
from .killed import JOBS
from .killed import campaign as kill

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "recipes" / "reliability.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def measure(
    record: dict[str, Any], damaged: int, kills: int, commands: list[str], minutes: float
) -> Iterator[None]:
    """Put figures into a record, one group at a time: how many were tried, and what came of them."""
    with tempfile.TemporaryDirectory() as scratch:
        for number, form in enumerate(FORMATS if damaged else ()):
            counts, defects = campaign(form, Path(scratch) / str(number), damaged)
            record["damaged"][form.name] = {"hashed": form.hashed, **counts, "defects": defects[:20]}
            print(form.name, dict(counts), *defects[:5], sep="\n  ", flush=True)
            yield
        for name in commands if kills else ():
            record["killed"][name] = kill(name, Path(scratch) / name.replace(" ", "-"), kills, minutes)
            print(name, record["killed"][name], flush=True)
            yield


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
        "| Killed with -9, run again | tried | same files, no others | of these went on, not anew |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {one['tried']:,} | {one['survived']:,} | {one['resumed']:,} |"
        for name, one in record["killed"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--damaged", type=int, default=10_000, help="files of each format; 0 keeps the last figures"
    )
    parser.add_argument("--kills", type=int, default=100, help="of each command; 0 keeps the last figures")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for the kills of each command")
    parser.add_argument("--commands", default=",".join(JOBS), help="that are killed")
    asked = parser.parse_args()
    record: dict[str, Any] = {"damaged": {}, "killed": {}}
    for _ in measure(record, asked.damaged, asked.kills, asked.commands.split(","), asked.minutes):
        with held(RECORD, "the figures"):  # several commands may be tried at once
            last = read_json(RECORD) if RECORD.is_file() else {}
            groups = {name: {**last.get(name, {}), **record[name]} for name in ("damaged", "killed")}
            write_json(RECORD, {**last, **groups, "commit": commit(), "versions": versions()})
    record = read_json(RECORD)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n{table(record)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
