"""Names of methods that are gone, and what to use instead: their settings still stand in files of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE = {
    "mixture-gated": "best",
    "hebb-learned": "hebb",
    "mixture+hebb-learned": "mixture+hebb",
    "mixture+cache": "best",
    "dynamic+mixture": "dynamic+best",
    "dynamic+mixture+hebb": "dynamic+best",
    "dynamic+mixture+cache": "dynamic+best",
    "mbpa-guarded": "mbpa",
}
"""The method to use instead, by the name of one that is gone."""
_SECTIONS = {name.replace("+", "_").replace("-", "_"): name for name in GONE}


def instead_of(setting: str) -> str | None:
    """Return what to do instead of a setting that is gone, by its dotted name; None for any other name."""
    section = setting.partition(".")[0].replace("+", "_")
    if section == "tempered":
        return "leave it out; a method's distribution has no temperature any more"
    method = _SECTIONS.get(section)
    return method and f"leave it out; {method} is gone, use {GONE[method]}"


def without_gone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name without those that are gone."""
    return {name: value for name, value in values.items() if instead_of(name) is None}
