"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from hebblm.errors import UserError


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to an unknown one, None if no name is near."""
    names = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a clause that suggests a known name for an error; empty if no name is near."""
    meant = closest(name, known)
    return "" if meant is None else f" did you mean {meant}?"


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> UserError:
    """Return the error for an unknown name: first a suggestion, then the choices."""
    return UserError(f"unknown {kind} {name!r};{did_you_mean(name, known)} {remedy}")
