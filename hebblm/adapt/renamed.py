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


def present_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name, from a file of this release or the last, under their present
    names.
    """
    return {present_name(name): value for name, value in values.items()}
