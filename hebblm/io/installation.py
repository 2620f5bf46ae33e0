"""Location of the data that comes with hebblm: at the top of a checkout, or in the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from hebblm.errors import UserError

PACKAGE = Path(str(resources.files("hebblm")))


def manifest_path() -> Path:
    """Return the path of the list of corpora."""
    return _find("corpora.json", "the list of corpora")


def models_path() -> Path:
    """Return the folder of the models that come with hebblm: all in a checkout, a tiny one in an
    installation.
    """
    return _find("models", "the folder of models")


def _find(name: str, title: str) -> Path:
    folders = (PACKAGE.parent / "data", PACKAGE / "data")  # of a checkout, of an installation
    for folder in folders:
        # Another project may have a folder of this name next to the installed package.
        if (folder / "corpora.json").is_file() and (folder / name).exists():
            return folder / name
    raise UserError(f"{title} is missing ({folders[1] / name}); install hebblm again")
