"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from hebblm.errors import UserError


def closest(name: str, known: Iterable[str]) -> str | None:
    """Known name nearest to one that is not known, None where none is near."""
    names = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What a name that is not known may have meant, as a clause of its error; empty where none is near."""
    meant = closest(name, known)
    return "" if meant is None else f" did you mean {meant}?"


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> UserError:
    """Error for a name that is not known: what it may have meant, then what can be chosen."""
    return UserError(f"unknown {kind} {name!r};{did_you_mean(name, known)} {remedy}")
