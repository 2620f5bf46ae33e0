"""Errors of the image experiments that a tuning goes on behind."""

from __future__ import annotations

from hebblm.errors import UserError


class DivergedError(UserError):
    """Training that ceased to be finite, which says of a rate that is tried that it is none."""
