"""Attempts to break hebblm, in a few rows, for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable

from hebblm.io.files import read_json
from recipes.markdown import ROOT

FOUND = ROOT / "recipes" / "reliability.json"
RIGHT = ("loaded as it was", "refused")  # what a damaged file may do
OTHERS = ("hashed", "defects")  # of a format, and no counts
GROUPS = {
    "disk": "commands on full, read-only and foreign disks",
    "together": "commands started twice at once",
    "texts": "odd, huge and broken texts",
    "pages": "hostile text in reports",
    "options": "random command lines and option files",
    "numbers": "settings and numbers at their ends",
    "soak": "methods over a million tokens",
    "variants": "tests on other versions and processors",
    "supply": "modules and sources checked for use of the network",
    "serve": "malformed requests to the server, and clients at once",
    "serve-stopped": "the server killed or ended while it learned",
}


def summary() -> str:
    """Return a row for each group of trials: how many there were, and how many ended as
    promised.
    """
    found = read_json(FOUND)
    damaged = [
        count
        for each in found["damaged"].values()
        for name, count in each.items()
        if name not in OTHERS
    ]
    right = sum(each.get(name, 0) for each in found["damaged"].values() for name in RIGHT)
    rows = [("files damaged at random", sum(damaged), right)]
    rows += [("commands killed and run again", *_counts(found["killed"].values()))]
    rows += [
        (title, *_counts(found["others"][name]["cases"].values()))
        for name, title in GROUPS.items()
        if name in found["others"]
    ]
    lines = [f"| {title} | {tried:,} | {held:,} |" for title, tried, held in rows]
    return "\n".join(["| Tried | times | ended as promised |", "| :-- | --: | --: |", *lines])


def _counts(cases: Iterable[dict[str, int]]) -> tuple[int, int]:
    cases = list(cases)
    return sum(case["tried"] for case in cases), sum(case["survived"] for case in cases)
