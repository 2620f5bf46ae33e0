"""The case policy, an explicit choice that is printed with every result."""

from __future__ import annotations

from typing import Literal, get_args

from hebblm.errors import UserError

Normalization = Literal["raw", "lower"]


def normalize(line: str, policy: Normalization) -> str:
    """Line as it stands (``raw``) or lower-cased (``lower``).

    The symbols ``<unk>`` and ``<eos>`` are lower-case already and stay what they are.
    """
    if policy == "raw":
        return line
    if policy == "lower":
        return line.lower()
    raise UserError(f"unknown normalization {policy!r}; choose one of {', '.join(get_args(Normalization))}")
