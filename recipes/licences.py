"""The licences of all that hebblm needs when it runs, as the installed packages state them.

Usage: python -m recipes.licences
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from hebblm.files import write_json

FILE = Path(__file__).with_name("licences.json")
EXTRAS = ("", "cpu", "hf")
LONGEST = 200  # characters; what is longer is the text of a licence, not its name


def licences(root: str = "hebblm") -> dict[str, dict[str, str]]:
    """Return by name the version and licence of every installed package that a package needs, directly or not."""
    found: dict[str, dict[str, str]] = {}
    open_, seen = [(root, EXTRAS)], set[tuple[str, str]]()
    while open_:
        name, extras = open_.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform, or of an extra that is not installed
        if name != root:
            found[_plain(name)] = {"version": package.version, "licence": _licence(package.metadata)}
        for extra in extras:
            if (_plain(name), extra) in seen:
                continue
            seen.add((_plain(name), extra))
            for line in package.requires or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    open_.append((needed.name, ("", *needed.extras)))
    return dict(sorted(found.items()))


def _plain(name: str) -> str:
    """Return a package's name as indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(metadata: object) -> str:
    """Return how a package names its licence: as an expression, in a line, or by its classifiers."""
    get = metadata.get_all  # type: ignore[attr-defined]
    named = [line for key in ("License-Expression", "License") for line in get(key) or [] if len(line) <= LONGEST]
    classed = [line.rpartition(" :: ")[2] for line in get("Classifier") or [] if line.startswith("License ::")]
    return (named or [" and ".join(classed)])[0].strip()


if __name__ == "__main__":
    write_json(FILE, {"command": "python -m recipes.licences", "packages": licences()})
