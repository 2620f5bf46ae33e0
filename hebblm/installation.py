"""Location of the data that comes with hebblm: in a checkout, or below the prefix of an installation."""

from __future__ import annotations

import sys
from pathlib import Path

from hebblm.errors import UserError


def manifest_path() -> Path:
    """Return where the list of corpora stands.

    Raises:
        UserError: in neither place.
    """
    return _find("corpora.json", "the list of corpora")


def models_path() -> Path:
    """Return the folder of the models that come with hebblm.

    Raises:
        UserError: in neither place.
    """
    return _find("models", "the folder of models")


def _find(name: str, title: str) -> Path:
    """Return the first place that has ``name``."""
    places = Path(__file__).resolve().parents[1] / "data", Path(sys.prefix) / "share" / "hebblm"
    for place in places:
        if (place / name).exists():
            return place / name
    raise UserError(f"{title} is missing ({places[0] / name}); install hebblm again")
