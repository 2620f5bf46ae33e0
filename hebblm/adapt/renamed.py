"""Settings that the last release called otherwise: the one table for every file of a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "mbpa.pull": "mbpa.l2_to_base",
    "mbpa.closeness": "mbpa.kernel_weight",
    "hebb.closeness": "hebb.kernel_weight",
}
"""The present dotted name of a setting, by the one in the last release."""


def present_name(name: str) -> str:
    """Return the present dotted name of a setting; ``mixture+hebb.weight`` is
    ``mixture_hebb.weight``.
    """
    return RENAMED.get(name, name.replace("+", "_"))


def present_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name, or by section and name at any depth, under their present names."""
    keys = {old.partition(".")[2]: new.partition(".")[2] for old, new in RENAMED.items()}
    present = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            present[key] = present_keys(value)
        else:
            present[keys.get(key, key)] = value
    return present


def present_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name, from a file of this release or the last, under their present
    names.
    """
    return {present_name(name): value for name, value in values.items()}
