"""What the methods are called, known without loading torch."""

from __future__ import annotations

from hebblm.errors import UserError
from hebblm.suggest import unknown

DYNAMIC = "dynamic"
METHODS = (
    "lstm", "cache", "knn", "mixture", "mbpa", "mbpa-absolute", "mbpa-guarded", "hebb", "mixture+mbpa", "mixture+hebb",
    "mixture-gated", "mixture+cache", "hebb-learned", "mixture+hebb-learned", "hebb-v1", "hebb-v2", "hebb-v3",
    "hebb-literal", DYNAMIC, "dynamic+mixture", "dynamic+mixture+hebb", "dynamic+mixture+cache",
)  # fmt: skip
"""All of them, in the order of the rules that :mod:`hebblm.adapt.methods` gives them."""
PAPER_METHODS = ("lstm", "mixture", "mbpa", "hebb", "mixture+mbpa", "mixture+hebb")
DEFAULT_METHODS = ("lstm", DYNAMIC, "cache", "knn", *PAPER_METHODS[1:])
OUR_METHODS = (
    "mbpa-absolute", "mbpa-guarded", "mixture-gated", "mixture+cache", "hebb-learned", "mixture+hebb-learned",
    "dynamic+mixture", "dynamic+mixture+hebb", "dynamic+mixture+cache",
)  # fmt: skip
EVERY = "all"


def named(text: str) -> list[str]:
    """Return the methods of a comma-separated list; ``all`` stands for the default ones and those beyond the paper.

    Raises:
        UserError: an unknown or repeated method.
    """
    names = [name.strip() for name in text.split(",")]
    names = [*DEFAULT_METHODS, *OUR_METHODS] if names == [EVERY] else names
    check_methods(names)
    return names


def check_methods(names: list[str]) -> None:
    """Refuse an unknown or repeated method.

    Raises:
        UserError: naming it and the known ones.
    """
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS, f"choose from {', '.join(METHODS)}, or {EVERY} alone")
    if len(set(names)) < len(names) or not names:
        raise UserError(f"methods {','.join(names)!r} must name each method once, at least one")
