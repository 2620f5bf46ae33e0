"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from hebblm.errors import UserError


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to one that is not known, None where none is near."""
    names = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), names, n=1)
    return names[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what a name that is not known may have meant, as a clause of its error; empty where none is near."""
    meant = closest(name, known)
    return "" if meant is None else f" did you mean {meant}?"


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> UserError:
    """Return the error for a name that is not known: what it may have meant, then what can be chosen.

    Args:
        kind: of thing, e.g. ``method``.
        name: as it was given.
        known: names of things of this kind.
        remedy: what to do where no known name was meant.
    """
    return UserError(f"unknown {kind} {name!r};{did_you_mean(name, known)} {remedy}")
