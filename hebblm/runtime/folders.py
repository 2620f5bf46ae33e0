"""The user's folders."""

from __future__ import annotations

import os
from pathlib import Path

from hebblm.errors import UserError


def cache_dir() -> Path:
    """Return the user's cache: ``$HEBBLM_CACHE``, or ``~/.cache/hebblm``."""
    try:
        return Path(os.environ.get("HEBBLM_CACHE") or Path.home() / ".cache" / "hebblm")
    except RuntimeError as error:
        raise UserError(
            "no home folder is known; set HEBBLM_CACHE to a folder that you can write"
        ) from error
