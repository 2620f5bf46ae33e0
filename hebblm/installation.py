"""Location of the data that comes with hebblm: in a checkout, next to an installation, or below its
prefix.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hebblm.errors import UserError


def manifest_path() -> Path:
    """Return the path of the list of corpora."""
    return _find("corpora.json", "the list of corpora")


def models_path() -> Path:
    """Return the folder of the models that come with hebblm: all in a checkout, a tiny one in an
    installation.
    """
    return _find("models", "the folder of models")


def _find(name: str, title: str) -> Path:
    beside, share = Path(__file__).resolve().parents[1], Path("share", "hebblm")
    folders = (
        beside / "data",
        beside / share,
        Path(sys.prefix) / share,
    )  # the second: pip install --target
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{title} is missing ({folders[0] / name}); install hebblm again")
