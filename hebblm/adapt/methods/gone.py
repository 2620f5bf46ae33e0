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


def gone_setting(name: str) -> str | None:
    """Return what to say of a setting that is gone, by its dotted name; None for any other name."""
    section = name.partition(".")[0].replace("+", "_")
    if section == "tempered":
        return f"setting {name} is gone, since methods have no temperature any more; leave it out"
    method = _SECTIONS.get(section)
    return method and f"setting {name} is gone with {method}; leave it out, and use {GONE[method]}"


def without_gone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name without those that are gone."""
    return {name: value for name, value in values.items() if gone_setting(name) is None}
